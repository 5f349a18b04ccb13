"""Several processes training one model: who they are, what they agree on, and that none hangs."""
