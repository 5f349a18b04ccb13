"""What chance does to a loss: the spread over seeds, as well as the runs tell it."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""Student's t with 1, 2, ... degrees of freedom: nine of ten values lie between -t and t."""


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
        t = STUDENT[min(self.freedom, len(STUDENT)) - 1]
        return t * math.sqrt(2 / pairs) * self.deviation

    def drawn(self, draw: random.Random) -> float:
        """A deviation that the seeds leave possible: a scaled inverse χ², which makes Student's t
        of a mean. To take their own for certain would make too little of chance."""
        squares = sum(draw.gauss(0, 1) ** 2 for _ in range(self.freedom))
        return self.deviation * math.sqrt(self.freedom / squares)
