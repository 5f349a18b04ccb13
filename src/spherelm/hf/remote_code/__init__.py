"""The classes that are copied into every nGPT export, so that transformers alone can load it."""
