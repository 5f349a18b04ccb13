"""How a model is sharded and compiled, and its gradients are combined."""
