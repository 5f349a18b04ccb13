"""What others report to train nGPT with fewer tokens: each opt-in, in a file that names its source.

None of it is on by default. Constants that the sources leave open are fields of `OptimConfig`,
with values of our own.
"""
