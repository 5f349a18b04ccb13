"""The best setting of each arm at each budget."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spherelm.paper.noise import Noise
from spherelm.paper.scaling.arms import ARMS, MAIN
from spherelm.paper.scaling.chance import Noises
from spherelm.paper.scaling.identity import place, settings
from spherelm.paper.store import Record


@dataclass(frozen=True)
class Best:
    """The best setting of an arm at a budget: the final loss of each of its seeds."""

    arm: str
    size: str
    context: int
    tokens: int
    runs: tuple[Record, ...]

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Its key in `settings`."""
        return self.arm, self.size, self.context, self.tokens

    @property
    def losses(self) -> list[float]:
        return [run.loss for run in self.runs]

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses)


def places(bests: Sequence[Best]) -> list[tuple[str, int]]:
    """Sizes and contexts that were measured, the study's own first."""
    return sorted({(b.size, b.context) for b in bests}, key=lambda where: place(*where))


def _best(tried: Sequence[Sequence[Record]], noise: Noise | None) -> Sequence[Record]:
    """The best setting by mean loss over the seeds that all have; one with more seeds is preferred
    if the difference is within chance.

    One lucky run must not beat the mean of three, nor a mean of three win because of one lucky run:
    settings with equally many seeds are compared on all the seeds they share.
    """
    losses, seeds = _losses(tried)
    chance = 0.0 if noise is None else noise.below(max(1, seeds))
    near = [runs for runs, loss in zip(tried, losses, strict=True) if loss <= min(losses) + chance]
    most = max(map(len, near))
    known = [runs for runs in near if len(runs) == most]
    losses, _ = _losses(known)
    return known[losses.index(min(losses))]


def _losses(tried: Sequence[Sequence[Record]]) -> tuple[list[float], int]:
    """The mean of each setting over the seeds that all have, or over its own if they share none;
    and the number of shared seeds."""
    shared = set.intersection(*({r.config.train.seed for r in runs} for runs in tried))
    alike = (
        [r.loss for r in runs if r.config.train.seed in shared or not shared] for runs in tried
    )
    return list(map(statistics.fmean, alike)), len(shared)


def best_settings(records: Sequence[Record], noises: Noises) -> list[Best]:
    """The best setting, with all its seeds, of each compared arm at each size, context and budget.

    Compared are the arms of `MAIN`, and recipes that were run with two budgets at some size and
    context (those are then included everywhere), since one budget gives a loss but no curve.
    """
    found = [
        Best(*key, tuple(_best(runs, noises.get(key[1:3]))))
        for key, runs in settings(records).items()
    ]
    budgets = Counter((b.arm, b.size, b.context) for b in found)
    carried = {arm for (arm, *_), several in budgets.items() if several > 1}
    found = [b for b in found if b.arm in MAIN or b.arm in carried]
    order = list(ARMS)
    return sorted(found, key=lambda b: (order.index(b.arm), b.size, b.context, b.tokens))
