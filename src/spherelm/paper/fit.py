"""A curve, loss over tokens, and the factor: tokens it needs for the loss at which another run ends
/ tokens of that run.

    L(D) = E + A·D^−b        from three budgets on
    L(D) = A·D^−b            (a straight line in logarithms) with two

Curves bend in logarithms, too: the line nearest to three ends of nGPT misses the middle one by 8 %
of its tokens, and of its intervals of 90 % fewer than half hold the truth there.

Two budgets are a law only between them, where the line asks for a little too much, 3 % where one is
twice the other: beyond the larger one nothing is read off it, and of what lies below the smallest
budget only what is near.
Only ends of finished schedules are compared. Where something is known of chance, an interval: every
budget's mean is drawn again from what its seeds leave open, on both sides, and all is fitted anew.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spherelm.paper.noise import Noise

Losses = Mapping[int, Sequence[float]]
"""By tokens: the final loss of each seed."""

DRAWS = 2000
EXTRAPOLATE = 2.0
"""How far beyond its largest budget a fit of three budgets or more is believed, at most."""
BELOW = 1.1
"""How far below its smallest one any fit is."""
_MIDDLE = 0.14
_STEPS = (1.3, 1.03, 1.003, 1.0003)
"""Ratios of neighbouring exponents. Those from 0.01 to 2 are tried first, then ever closer to the
best one so far, ten on either side of it. With steps of 3 % alone a share in the study's tables
is up to 0.003 off, and they have two digits."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PowerLaw:
    """E + A·D^−b"""

    E: float
    A: float
    b: float

    def loss(self, tokens: float) -> float:
        return self.E + self.A * tokens**-self.b

    def tokens(self, loss: float) -> float:
        """Where the law reaches `loss`; infinite where it never does, or beyond all numbers."""
        try:
            return (self.A / (loss - self.E)) ** (1 / self.b) if loss > self.E else math.inf
        except OverflowError:  # of a curve that all but lies flat
            return math.inf


def fit(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """The law nearest to (tokens, loss) by squares; None where they are too few or do not fall."""
    tokens, losses = np.array(points, dtype=float).reshape(-1, 2).T
    E, A, b = (float(value[0]) for value in _fits(tokens, losses[None]))
    return None if math.isnan(b) else PowerLaw(E, A, b)


def _fits(tokens: Array, losses: Array) -> tuple[Array, Array, Array]:
    """E, A and b of many laws at once; NaN where there is none. tokens: (D,), losses: (N, D)"""
    budgets, none = len(np.unique(tokens)), np.full(len(losses), np.nan)
    if budgets < 2:
        return none, none, none
    if budgets < 3:
        slope, start, _ = _lines(np.log(tokens)[:, None], np.log(losses))
        falls = slope[:, 0] < 0
        A, b = np.exp(start[:, 0]), -slope[:, 0]
        return np.where(falls, 0.0, none), np.where(falls, A, none), np.where(falls, b, none)
    each, best = np.arange(len(losses)), np.full(len(losses), _MIDDLE)
    for step in _STEPS:
        b = best[:, None] * step ** np.arange(-10, 11)
        # For an exponent, the best E and A are a line over D^−b.
        A, E, off = _lines(tokens[:, None] ** -b[:, None], losses)
        off = np.where((A > 0) & (E >= 0), off, np.inf)
        nearest = off.argmin(axis=1)
        best = b[each, nearest]
    found = np.isfinite(off[each, nearest])
    laws = E[each, nearest], A[each, nearest], best
    E, A, b = (np.where(found, value, none) for value in laws)
    return E, A, b


def _lines(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Slopes, intercepts and squared errors of the lines nearest by squares, of every row of y over
    every column of its x.  x: (N, D, M), or (D, M) of all rows; y: (N, D) -> (N, M) each"""
    y = y[..., None]
    x_mean, y_mean = x.mean(axis=-2, keepdims=True), y.mean(axis=-2, keepdims=True)
    from_mean, y_from_mean = x - x_mean, y - y_mean
    slope = (y_from_mean * from_mean).sum(axis=-2) / (from_mean**2).sum(axis=-2)
    start = y_mean[..., 0, :] - slope * x_mean[..., 0, :]
    return slope, start, ((y_from_mean - slope[..., None, :] * from_mean) ** 2).sum(axis=-2)


@dataclass(frozen=True)
class Factor:
    """How many times the tokens of a run another curve needs for its loss: below 1, a share."""

    tokens: int
    needed: float
    extrapolated: bool
    """Whether the curve's fit had to go beyond what was measured."""
    low: float | None = None
    high: float | None = None
    """The interval of 90 %; unset where nothing is known of chance."""

    @property
    def value(self) -> float:
        return self.needed / self.tokens


def factor(
    curve: Losses, tokens: int, losses: Sequence[float], noise: Noise | None = None
) -> Factor | None:
    """What `curve` needs for the loss that another run has after `tokens`, each seed's in `losses`.

    `noise`: what is known of chance, for all of them alike. None where there is no fit, or it would
    be asked too far from what was measured.
    """
    law = fit([(d, statistics.fmean(seeds)) for d, seeds in curve.items()])
    if law is None:
        return None
    needed = law.tokens(statistics.fmean(losses))
    least, most = min(curve), max(curve)
    if not least / BELOW <= needed <= most * (EXTRAPOLATE if len(curve) > 2 else 1):
        return None
    beyond = not least <= needed <= most
    if noise is None:
        return Factor(tokens, needed, beyond)
    low, high = interval(curve, losses, noise)
    return Factor(tokens, needed, beyond, low / tokens, high / tokens)


def interval(curve: Losses, losses: Sequence[float], noise: Noise) -> tuple[float, float]:
    """Between which numbers of tokens nine of ten draws of `curve` reach the loss of `losses`."""
    found = sorted(_drawn(curve, losses, noise))
    return found[int(0.05 * len(found))], found[math.ceil(0.95 * len(found)) - 1]


def _drawn(curve: Losses, losses: Sequence[float], noise: Noise) -> list[float]:
    """Tokens needed, for means drawn again; one deviation a draw, of all of them."""
    groups = [(statistics.fmean(seeds), len(seeds)) for seeds in (*curve.values(), losses)]
    draw = random.Random(0)
    drawn = []
    for _ in range(DRAWS):
        spread = noise.drawn(draw)
        drawn.append([draw.gauss(mean, spread / math.sqrt(seeds)) for mean, seeds in groups])
    means = np.array(drawn)
    # Where the variance is that of two seeds, a draw may be absurd.
    possible = means.min(axis=1) > 0
    means[~possible] = 1.0
    E, A, b = _fits(np.array(list(curve), dtype=float), means[:, :-1])
    above = means[:, -1] - E
    reached = possible & (above > 0)  # not where there is no law: its E is NaN
    found = np.full(DRAWS, np.inf)
    with np.errstate(over="ignore"):
        found[reached] = (A[reached] / above[reached]) ** (1 / b[reached])
    return [float(tokens) for tokens in found]
