"""Published recipes for training nGPT with fewer tokens, one per file, each naming its source.

All are off by default. Constants that the sources leave open are fields of `OptimConfig`, with
defaults of our own.
"""
