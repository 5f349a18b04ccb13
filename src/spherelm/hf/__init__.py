"""Hugging Face: write and read folders for transformers, without needing it."""
