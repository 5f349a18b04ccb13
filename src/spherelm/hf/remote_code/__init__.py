"""The classes that an export takes along, so that transformers alone can load it."""
