"""How a model is cut over processes, compiled, and its gradients brought together."""
