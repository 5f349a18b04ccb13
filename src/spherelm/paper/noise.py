"""How much a loss varies by chance: the spread over seeds, estimated from the runs."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FEW = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
_NORMAL = 1.644854
"""90 % of values of a standard normal distribution lie between minus and plus this."""


def student(freedom: int) -> float:
    """Student's t for 90 %: with so many degrees of freedom 90 % of values lie within ±t."""
    if freedom <= len(_FEW):
        return _FEW[freedom - 1]
    z, n = _NORMAL, freedom
    # Fisher's expansion about the normal distribution: within 4e-5 from 11 degrees of freedom on.
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


@dataclass(frozen=True)
class Noise:
    """The standard deviation of losses over seeds, and its degrees of freedom."""

    deviation: float
    freedom: int

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> Noise | None:
        """Pooled over settings, each a group of losses; None if none has two seeds."""
        several = [group for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in several)
        if not freedom:
            return None
        off = sum((len(group) - 1) * statistics.variance(group) for group in several)
        return cls(math.sqrt(off / freedom), freedom)

    def below(self, pairs: int) -> float:
        """What 90 % of mean differences between so many pairs of equal runs stay below."""
        return student(self.freedom) * math.sqrt(2 / pairs) * self.deviation

    def drawn(self, draw: random.Random) -> float:
        """A plausible true deviation, drawn from a scaled inverse χ², so that a mean drawn with it
        follows Student's t. Taking the seeds' own deviation as certain would understate chance."""
        squares = sum(draw.gauss(0, 1) ** 2 for _ in range(self.freedom))
        return self.deviation * math.sqrt(self.freedom / squares)
