"""A run on the disk: its folder, checkpoints, metrics and what must survive a restart."""
