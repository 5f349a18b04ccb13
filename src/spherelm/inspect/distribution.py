"""A distribution in a form for JSON: histogram, mean, spread and quantiles of many numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 60
QUANTILES = (0.01, 0.05, 0.25, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class Distribution:
    """A summary of many numbers, with counts in equally wide bins from `low` to `high`."""

    low: float
    high: float
    counts: tuple[int, ...]
    mean: float
    std: float
    median: float
    quantiles: tuple[float, ...]
    """The values at `QUANTILES`."""

    @property
    def centres(self) -> list[float]:
        """The middle of each bin."""
        width = (self.high - self.low) / len(self.counts)
        return [self.low + (i + 0.5) * width for i in range(len(self.counts))]


def distribution_of(values: Tensor, bins: int = BINS) -> Distribution:
    """The distribution of all numbers of a tensor, over its own range.

    Numbers that are equal up to rounding, such as the norms of unit vectors, fall into one bin in
    the middle of a narrow range, so that the histogram does not show rounding errors.
    """
    flat = wide(values).flatten()
    low, high = float(flat.min()), float(flat.max())
    middle = (low + high) / 2
    if high - low <= 1e-5 * max(abs(low), abs(high), 1e-30):
        width = (0.02 * abs(middle) or 1.0) / bins
        low = middle - (bins // 2 + 0.5) * width
        high = low + bins * width
    bin_of = ((flat - low) / (high - low) * bins).long().clamp_(0, bins - 1)
    counts = torch.bincount(bin_of, minlength=bins)
    return Distribution(
        low=low,
        high=high,
        counts=tuple(counts.tolist()),
        mean=float(flat.mean()),
        std=float(flat.std(correction=0)),
        median=float(flat.median()),
        quantiles=_quantiles(flat),
    )


def _quantiles(flat: Tensor) -> tuple[float, ...]:
    """The nearest value at each of `QUANTILES`; torch.quantile takes at most 2^24 numbers."""
    ordered, last = flat.sort().values, flat.numel() - 1
    return tuple(float(ordered[round(share * last)]) for share in QUANTILES)


def wide(x: Tensor) -> Tensor:
    """x in float64, moved to the CPU if its device (Apple's) does not support that."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).double()
