"""The order of training: every window once per epoch, in a seeded permutation.

The permutation is computed, not stored: finding the window at any position takes the same few
operations, whether there are ten windows or ten billion, so a run resumes from one integer.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

ROUNDS = 8
CHUNK = 4096
"""Positions computed at once, to make numpy's overhead per call negligible."""

Indices = NDArray[np.uint64]


class Permutation:
    """A keyed bijection of {0, …, n − 1}: a Feistel network over a grid.

    Position x is a cell (l, r) of a grid of a rows and b columns, a·b ≥ n. Each round shifts one
    coordinate by a hash of the other, l ← (l + F(r)) mod a and then r ← (r + F(l)) mod b, which is
    invertible and so a bijection of the grid. A cell past n is mapped again until it falls below n
    (cycle walking); since a·b < n + √n + 1 that is rare.
    """

    def __init__(self, n: int, key: bytes) -> None:
        self.n = n
        self.rows = math.isqrt(n - 1) + 1 if n > 1 else 1
        self.columns = -(-n // self.rows)
        digest = hashlib.blake2b(key, digest_size=8 * ROUNDS).digest()
        self.keys = np.frombuffer(digest, "<u8").astype(np.uint64)

    def __call__(self, positions: Indices) -> Indices:
        """The images of `positions`, each below n."""
        image = self._grid(positions)
        while (outside := image >= self.n).any():
            image[outside] = self._grid(image[outside])
        return image

    def _grid(self, x: Indices) -> Indices:
        a, b = np.uint64(self.rows), np.uint64(self.columns)
        l, r = x // b, x % b  # noqa: E741 - the halves of a Feistel network have these names
        for i in range(0, ROUNDS, 2):
            l = (l + _hash(r, self.keys[i]) % a) % a  # noqa: E741
            r = (r + _hash(l, self.keys[i + 1]) % b) % b
        return l * b + r


def _hash(x: Indices, key: np.uint64) -> Indices:
    """The finalizer of splitmix64: every bit of the input moves every bit of the output."""
    x = x ^ key
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class TrainingOrder:
    """Which window is the q-th sequence of a run, for every q: epoch q // n, position q % n."""

    def __init__(self, n_windows: int, seed: int) -> None:
        self.n_windows, self.seed = n_windows, seed
        self._first = 0
        self._windows: NDArray[np.int64] = np.empty(0, np.int64)

    def windows(self, first: int, count: int) -> NDArray[np.int64]:
        """The windows of sequences first, …, first + count − 1 of the run."""
        skip = first - self._first
        if skip < 0 or skip + count > len(self._windows):
            self._first, skip = first, 0
            self._windows = self._compute(first, max(count, min(CHUNK, self.n_windows)))
        return self._windows[skip : skip + count]

    def _compute(self, first: int, count: int) -> NDArray[np.int64]:
        parts = []
        while count:
            epoch, position = divmod(first, self.n_windows)
            length = min(count, self.n_windows - position)
            permutation = Permutation(self.n_windows, f"{self.seed} {epoch}".encode())
            parts.append(permutation(np.arange(position, position + length, dtype=np.uint64)))
            first, count = first + length, count - length
        return np.concatenate(parts).astype(np.int64)
