"""Models in and out of folders: runs, checkpoints, Hugging Face. Needs no transformers."""
