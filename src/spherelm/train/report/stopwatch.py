"""Seconds of each step, without the time of evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Laps that leave out what is paused."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        seconds, self._start = now - self._start, now
        return max(seconds, 1e-9)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time that does not count."""
        began = time.perf_counter()
        yield
        self._start += time.perf_counter() - began


class RunningMean:
    """A noisy value made smooth: a tenth of it is new at each update."""

    def __init__(self) -> None:
        self._mean: float | None = None

    def update(self, value: float) -> float:
        self._mean = value if self._mean is None else 0.9 * self._mean + 0.1 * value
        return self._mean
