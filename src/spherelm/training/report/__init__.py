"""What a training run says while it goes: lines, metrics, trackers."""
