"""Fit loss over tokens D, and from it the factor: (tokens the curve needs for the loss at which
another run ends) / (tokens of that run).

    L(D) = E + A·D^−b        for three budgets or more
    L(D) = A·D^−b            for two: a straight line in log-log

E is needed because the curves are not straight in log-log: the best line through three ends of nGPT
misses the middle one by 8 % of its tokens, and fewer than half of its 90 % intervals hold the truth
there.

With two budgets the line is used only between them, where it overestimates the tokens a little (by
3 % if one budget is twice the other), and just below the smaller one, but not beyond the larger.
Only ends of finished schedules are compared. If the spread over seeds is known, there is also an
interval: on both sides every budget's mean is redrawn from its uncertainty, and the fit repeated.
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
"""A fit of three budgets or more is used up to this many times its largest budget."""
BELOW = 1.1
"""Any fit is used down to its smallest budget divided by this."""
_MIDDLE = 0.14
_STEPS = (1.3, 1.03, 1.003, 1.0003)
"""Ratios of neighbouring exponents in successive grid searches: first from 0.01 to 2, then ever
closer to the best one so far, with ten on either side of it. Stopping at steps of 3 % would put
shares in the study's tables, which have two digits, off by up to 0.003."""

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
        """The tokens at which the law reaches `loss`; infinite if it never does or on overflow."""
        try:
            return (self.A / (loss - self.E)) ** (1 / self.b) if loss > self.E else math.inf
        except OverflowError:  # the curve is almost flat
            return math.inf


def fit(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """Least-squares fit to (tokens, loss); None if there are too few points or they do not fall."""
    tokens, losses = np.array(points, dtype=float).reshape(-1, 2).T
    E, A, b = (float(value[0]) for value in _fits(tokens, losses[None]))
    return None if math.isnan(b) else PowerLaw(E, A, b)


def _fits(tokens: Array, losses: Array) -> tuple[Array, Array, Array]:
    """E, A and b of N fits at once; NaN where none is possible. tokens: (D,), losses: (N, D)"""
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
        # For a given exponent, the best E and A are those of a straight line over D^−b.
        A, E, off = _lines(tokens[:, None] ** -b[:, None], losses)
        off = np.where((A > 0) & (E >= 0), off, np.inf)
        nearest = off.argmin(axis=1)
        best = b[each, nearest]
    found = np.isfinite(off[each, nearest])
    laws = E[each, nearest], A[each, nearest], best
    E, A, b = (np.where(found, value, none) for value in laws)
    return E, A, b


def _lines(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Slopes, intercepts and squared errors of the least-squares lines of every row of y over every
    column of its x.  x: (N, D, M), or (D, M) shared by all rows; y: (N, D) -> (N, M) each"""
    y = y[..., None]
    x_mean, y_mean = x.mean(axis=-2, keepdims=True), y.mean(axis=-2, keepdims=True)
    from_mean, y_from_mean = x - x_mean, y - y_mean
    slope = (y_from_mean * from_mean).sum(axis=-2) / (from_mean**2).sum(axis=-2)
    start = y_mean[..., 0, :] - slope * x_mean[..., 0, :]
    return slope, start, ((y_from_mean - slope[..., None, :] * from_mean) ** 2).sum(axis=-2)


@dataclass(frozen=True)
class Factor:
    """How many times a run's tokens another curve needs for the same loss: below 1, a share."""

    tokens: int
    needed: float
    extrapolated: bool
    """Whether `needed` lies outside the budgets that were measured."""
    low: float | None = None
    high: float | None = None
    """The 90 % interval; unset if the spread over seeds is unknown."""

    @property
    def value(self) -> float:
        return self.needed / self.tokens


def factor(
    curve: Losses, tokens: int, losses: Sequence[float], noise: Noise | None = None
) -> Factor | None:
    """What `curve` needs for the loss that another run reaches after `tokens`; `losses` has one per
    seed.

    `noise` is the spread over seeds, the same for all of them. None if there is no fit, or the
    answer is too far from the budgets measured.
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
    """The numbers of tokens between which 90 % of draws of `curve` reach the loss of `losses`."""
    found = sorted(_drawn(curve, losses, noise))
    return found[int(0.05 * len(found))], found[math.ceil(0.95 * len(found)) - 1]


def _drawn(curve: Losses, losses: Sequence[float], noise: Noise) -> list[float]:
    """Tokens needed when all means are redrawn; each draw uses one deviation for all of them."""
    groups = [(statistics.fmean(seeds), len(seeds)) for seeds in (*curve.values(), losses)]
    draw = random.Random(0)
    drawn = []
    for _ in range(DRAWS):
        spread = noise.drawn(draw)
        drawn.append([draw.gauss(mean, spread / math.sqrt(seeds)) for mean, seeds in groups])
    means = np.array(drawn)
    # If the variance is known from two seeds only, a draw may be absurd (a negative loss).
    possible = means.min(axis=1) > 0
    means[~possible] = 1.0
    E, A, b = _fits(np.array(list(curve), dtype=float), means[:, :-1])
    above = means[:, -1] - E
    reached = possible & (above > 0)  # false where there is no fit: its E is NaN
    found = np.full(DRAWS, np.inf)
    with np.errstate(over="ignore"):
        found[reached] = (A[reached] / above[reached]) ** (1 / b[reached])
    return [float(tokens) for tokens in found]
