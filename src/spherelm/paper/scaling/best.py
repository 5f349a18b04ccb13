"""The best setting of each arm at each budget."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spherelm.measured.recommend import means
from spherelm.paper.noise import Noise
from spherelm.paper.scaling.arms import ARMS, MAIN
from spherelm.paper.scaling.chance import Noises
from spherelm.paper.scaling.identity import Key, Place, Runs, settings
from spherelm.paper.store import Record


@dataclass(frozen=True)
class Best:
    """The best setting of an arm at a budget: the final loss of each of its seeds."""

    arm: str
    place: Place
    tokens: int
    runs: Runs

    @property
    def key(self) -> Key:
        """Its key in `settings`."""
        return self.arm, self.place, self.tokens

    @property
    def losses(self) -> list[float]:
        return [run.loss for run in self.runs.values()]

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses)


def places(bests: Sequence[Best]) -> list[Place]:
    """Sizes and contexts that were measured, the study's own first."""
    return sorted({best.place for best in bests}, key=Place.rank)


def _best(tried: Sequence[Runs], noise: Noise | None) -> Runs:
    """The best setting by mean loss over the seeds that all have; one with more seeds is preferred
    if the difference is within chance.

    One lucky run must not beat the mean of three, nor a mean of three win because of one lucky run:
    settings with equally many seeds are compared on all the seeds they share.
    """
    losses, seeds = _means(tried)
    chance = 0.0 if noise is None else noise.below(max(1, seeds))
    near = [runs for runs, loss in zip(tried, losses, strict=True) if loss <= min(losses) + chance]
    most = max(map(len, near))
    known = [runs for runs in near if len(runs) == most]
    losses, _ = _means(known)
    return known[losses.index(min(losses))]


def _means(tried: Sequence[Runs]) -> tuple[list[float], int]:
    return means([{seed: run.loss for seed, run in runs.items()} for runs in tried])


def best_settings(records: Sequence[Record], noises: Noises) -> list[Best]:
    """The best setting, with all its seeds, of each compared arm at each size, context and budget.

    Compared are the arms of `MAIN`, and recipes that were run with two budgets at some size and
    context (those are then included everywhere), since one budget gives a loss but no curve.
    """
    found = [
        Best(arm, place, tokens, _best(tried, noises.get(place)))
        for (arm, place, tokens), tried in settings(records).items()
    ]
    budgets = Counter((best.arm, best.place) for best in found)
    carried = {arm for (arm, _), several in budgets.items() if several > 1}
    found = [b for b in found if b.arm in MAIN or b.arm in carried]
    order = list(ARMS)
    return sorted(found, key=lambda b: (order.index(b.arm), b.place, b.tokens))
