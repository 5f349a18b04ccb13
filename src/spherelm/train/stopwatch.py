"""Seconds of each step, without the time of evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Laps that leave out what is paused, and a smoothed value of whatever is measured."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._smooth: float | None = None

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

    def smooth(self, value: float) -> float:
        """The running mean of a noisy value: a tenth of it is new at each call."""
        self._smooth = value if self._smooth is None else 0.9 * self._smooth + 0.1 * value
        return self._smooth
