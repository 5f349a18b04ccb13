"""Time repeated work, as medians with spread, on a CPU or an asynchronous device."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

K = TypeVar("K")
TURNS = 4


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one repetition: the median, and the quartiles as its spread."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, milliseconds: list[float]) -> Timing:
        if len(milliseconds) == 1:
            return cls(*milliseconds * 3)
        low, median, high = statistics.quantiles(milliseconds, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{self.median:,.2f} ({self.low:,.2f} to {self.high:,.2f})"


def measure(
    work: Callable[[], object], device: torch.device, repeats: int, warmup: int = 2
) -> Timing:
    """Time `repeats` repetitions after `warmup` others."""
    return Timing.of(milliseconds(work, device, repeats, warmup))


def by_turns(
    works: Mapping[K, Callable[[], object]], device: torch.device, repeats: int, warmup: int
) -> dict[K, Timing]:
    """Time `repeats` repetitions of each in every one of `TURNS` turns: a device warms up, and so
    slows down, while it is measured."""
    times: dict[K, list[float]] = {name: [] for name in works}
    for _ in range(TURNS):
        for name, work in works.items():
            times[name] += milliseconds(work, device, repeats, warmup)
    return {name: Timing.of(found) for name, found in times.items()}


def free(device: torch.device) -> None:
    """Give back the memory of what is no longer used."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def copy_speed(device: torch.device, repeats: int = 10) -> float:
    """Bytes per second that a large copy (1 GiB on a GPU) reads and writes."""
    numbers = 1 << (28 if device.type == "cuda" else 24)
    source = torch.ones(numbers, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    copied = measure(lambda: target.copy_(source), device, repeats)
    return 2 * source.nbytes / (copied.median / 1e3)


def milliseconds(
    work: Callable[[], object], device: torch.device, repeats: int, warmup: int
) -> list[float]:
    """The time of each repetition."""
    for _ in range(warmup):
        work()
    if device.type != "cuda":
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            times.append((time.perf_counter() - start) * 1e3)
        return times
    # Events between repetitions, without waiting, so that the host runs ahead as in training.
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize(device)
    return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
