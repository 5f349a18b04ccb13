"""Differences of two settings, and what chance alone does: seeds of one setting differ, too."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spherelm.paper.store import Record

Runs = Mapping[int, Record]
"""Of one setting, by their seeds."""

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


COLUMNS = ("final loss", "difference", "by chance", "change, %")
BY_CHANCE = (
    "By chance: what nine of ten differences of two equal runs stay below, √2 times the standard "
    "deviation over seeds ({seeds}) times Student's t; what is beyond it is bold."
)


def cells(changed: Runs, unchanged: Runs, noise: Noise | None) -> list[str]:
    """The cells of `COLUMNS`; a difference has the same seeds on both sides."""
    loss = statistics.fmean(run.loss for run in changed.values())
    shared = sorted(changed.keys() & unchanged.keys())
    if not shared:
        return [f"{loss:.3f}", "-", "-", "-"]
    difference = statistics.fmean(changed[s].loss - unchanged[s].loss for s in shared)
    base = statistics.fmean(unchanged[seed].loss for seed in shared)
    most = None if noise is None else noise.below(len(shared))
    told = f"{difference:+.3f}"
    if most is not None and abs(difference) > most:
        told = f"**{told}**"
    chance = "-" if most is None else f"{most:.3f}"
    return [f"{loss:.3f}", told, chance, f"{100 * difference / base:+.2f}"]
