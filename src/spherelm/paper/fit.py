"""A baseline's loss over tokens, and the factor: tokens it needs / tokens that another needs.

    L(D) = E + A·D^−b        from four budgets on
    L(D) = A·D^−b            (a straight line in logarithms) with two or three

Two budgets are a law only between them: beyond the larger one nothing is read off it.
Only ends of finished schedules are compared. With seeds, an interval: every budget's mean is drawn
again from what its seeds leave open, on both sides, and all is fitted anew.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Losses = Mapping[int, Sequence[float]]
"""By tokens: the final loss of each seed."""

DRAWS = 2000
EXTRAPOLATE = 2.0
"""How far beyond its largest budget a fit of three budgets or more is believed, at most."""
_EXPONENTS = [0.01 * 1.03**i for i in range(160)]  # 0.01 to 1.1


@dataclass(frozen=True)
class PowerLaw:
    """E + A·D^−b"""

    E: float
    A: float
    b: float

    def loss(self, tokens: float) -> float:
        return self.E + self.A * tokens**-self.b

    def tokens(self, loss: float) -> float:
        """Where the law reaches `loss`; infinite where it never does."""
        return (self.A / (loss - self.E)) ** (1 / self.b) if loss > self.E else math.inf


def fit(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """The law nearest to (tokens, loss) by squares; None where they are too few or do not fall."""
    budgets = len({tokens for tokens, _ in points})
    if budgets < 2:
        return None
    if budgets < 4:
        slope, start = _line([math.log(d) for d, _ in points], [math.log(y) for _, y in points])
        return PowerLaw(0.0, math.exp(start), -slope) if slope < 0 else None
    laws = [law for b in _EXPONENTS if (law := _at(b, points)) is not None]
    return min(laws, key=lambda law: _error(law, points), default=None)


def _at(b: float, points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """The best E and A for an exponent: a line over D^−b."""
    A, E = _line([d**-b for d, _ in points], [y for _, y in points])
    return PowerLaw(E, A, b) if A > 0 and E >= 0 else None


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept of the line nearest by squares."""
    slope, intercept = statistics.linear_regression(xs, ys)
    return slope, intercept


def _error(law: PowerLaw, points: Sequence[tuple[float, float]]) -> float:
    return sum((law.loss(d) - y) ** 2 for d, y in points)


@dataclass(frozen=True)
class Factor:
    """How many times the tokens of a run the baseline needs for its loss."""

    tokens: int
    needed: float
    extrapolated: bool
    """Whether the baseline's fit had to go beyond its largest budget."""
    low: float | None = None
    high: float | None = None
    """The interval of 90 %; unset where nothing has more than one seed."""

    @property
    def value(self) -> float:
        return self.needed / self.tokens


def factor(baseline: Losses, tokens: int, losses: Sequence[float]) -> Factor | None:
    """What the baseline needs for the loss that another arm has after `tokens`.

    None where there is no fit, or it would be asked too far beyond what was measured.
    """
    law = fit([(d, statistics.fmean(seeds)) for d, seeds in baseline.items()])
    if law is None:
        return None
    needed = law.tokens(statistics.fmean(losses))
    if needed > max(baseline) * (EXTRAPOLATE if len(baseline) > 2 else 1):
        return None
    beyond = needed > max(baseline)
    if max(len(losses), *map(len, baseline.values())) < 2:
        return Factor(tokens, needed, beyond)
    found = sorted(_drawn(baseline, losses))
    low, high = found[int(0.05 * len(found))], found[math.ceil(0.95 * len(found)) - 1]
    return Factor(tokens, needed, beyond, low / tokens, high / tokens)


def _drawn(baseline: Losses, losses: Sequence[float]) -> list[float]:
    """Tokens needed, for means drawn again.

    All groups share one variance, as well as it is known: that of the seeds of all, and with so few
    of them it is drawn, too (a scaled inverse χ², which makes Student's t of a mean). To draw from
    three seeds themselves would take their spread for smaller than it is.
    """
    groups = [list(seeds) for seeds in (*baseline.values(), losses)]
    freedom = sum(len(seeds) - 1 for seeds in groups)
    off = sum((loss - statistics.fmean(seeds)) ** 2 for seeds in groups for loss in seeds)
    draw = random.Random(0)
    found = []
    for _ in range(DRAWS):
        spread = math.sqrt(off / sum(draw.gauss(0, 1) ** 2 for _ in range(freedom)))
        means = [
            draw.gauss(statistics.fmean(seeds), spread / math.sqrt(len(seeds))) for seeds in groups
        ]
        possible = min(means) > 0  # where the variance is that of two seeds, a draw may be absurd
        law = fit(list(zip(baseline, means[:-1], strict=True))) if possible else None
        found.append(math.inf if law is None else law.tokens(means[-1]))
    return found
