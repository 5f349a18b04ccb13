"""Hugging Face: folders that transformers reads, written and read without it."""
