"""What chance does to a loss: the spread over seeds, as well as the runs tell it."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FEW = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
_NORMAL = 1.644854
"""What nine of ten values of a normal distribution lie within."""


def student(freedom: int) -> float:
    """Student's t: nine of ten values with so many degrees of freedom lie between -t and t."""
    if freedom <= len(_FEW):
        return _FEW[freedom - 1]
    z, n = _NORMAL, freedom
    # Fisher's expansion about the normal distribution: from 11 on within 4e-5.
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


@dataclass(frozen=True)
class Noise:
    """The standard deviation of losses over seeds, and from how many it is known."""

    deviation: float
    freedom: int

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> Noise | None:
        """Of the losses of settings, each a group; None where none has two seeds."""
        several = [group for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in several)
        if not freedom:
            return None
        off = sum((len(group) - 1) * statistics.variance(group) for group in several)
        return cls(math.sqrt(off / freedom), freedom)

    def below(self, pairs: int) -> float:
        """What nine of ten mean differences of so many pairs of runs of one setting stay below."""
        return student(self.freedom) * math.sqrt(2 / pairs) * self.deviation

    def drawn(self, draw: random.Random) -> float:
        """A deviation that the seeds leave possible: a scaled inverse χ², which makes Student's t
        of a mean. To take their own for certain would make too little of chance."""
        squares = sum(draw.gauss(0, 1) ** 2 for _ in range(self.freedom))
        return self.deviation * math.sqrt(self.freedom / squares)
