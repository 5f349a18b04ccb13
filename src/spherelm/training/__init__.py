"""Training: the loop, the run directory, checkpoints, and what a run will cost."""
