"""Which arm a run belongs to, and the best setting of each arm."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.paper.scaling.arms import ARMS, MAIN
from spherelm.paper.scaling.grid import SMALL
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
    def losses(self) -> list[float]:
        return [run.loss for run in self.runs]

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses)


def arm_of(run: RunConfig) -> str:
    """The arm that a configuration belongs to."""
    fields = dict(flatten(to_dict(run)))
    fits = [
        name
        for name, arm in ARMS.items()
        if arm.ngpt == (run.model.arch == "ngpt")
        and all(fields.get(key) == value for key, value in arm.fields.items())
    ]
    return max(fits, key=lambda name: len(ARMS[name].fields))


def setting_of(name: str) -> tuple[str, str]:
    """Of a run's name: what its seeds have in common, and what it changes in its arm's model, as
    `Point.variant`; mostly nothing."""
    found = re.fullmatch(r"(.*)-s\d+(?:-(.+))?", name)
    return (name, "") if found is None else (found[1], found[2] or "")


def variant_of(name: str) -> str:
    return setting_of(name)[1]


def size_of(run: RunConfig) -> str:
    """The name of a run's model in `SHAPES`."""
    return f"{run.model.n_layers}x{run.model.d_model}"


def place(size: str, context: int) -> tuple[bool, str, int]:
    """To sort by size and context, the study's own size first."""
    return size != SMALL, size, context


def place_of(run: RunConfig) -> tuple[bool, str, int]:
    return place(size_of(run), run.model.context)


def places(bests: Sequence[Best]) -> list[tuple[str, int]]:
    """Sizes and contexts that were measured, the study's own size first."""
    return sorted({(b.size, b.context) for b in bests}, key=lambda where: place(*where))


def _best(tried: Sequence[Sequence[Record]]) -> Sequence[Record]:
    """Of settings with several seeds each the best one, on the seeds that all of them have: one
    lucky run must not win against the mean of three."""
    shared = set.intersection(*({r.config.train.seed for r in seeds} for seeds in tried))

    def loss(seeds: Sequence[Record]) -> float:
        alike = [r.loss for r in seeds if r.config.train.seed in shared]
        return statistics.fmean(alike or [r.loss for r in seeds])

    return min(tried, key=loss)


def settings(records: Sequence[Record]) -> dict[tuple[str, str, int, int], list[list[Record]]]:
    """The settings of every arm that is compared, at each size, context and budget: their runs."""
    found: dict[tuple[str, str, int, int], dict[str, list[Record]]] = {}
    for record in records:
        arm = arm_of(record.config)
        if record.finished and ARMS[arm].compared and not variant_of(record.id):
            model = record.config.model
            key = (arm, size_of(record.config), model.context, record.tokens)
            found.setdefault(key, defaultdict(list))[setting_of(record.id)[0]].append(record)
    return {key: list(runs.values()) for key, runs in found.items()}


def best_settings(records: Sequence[Record]) -> list[Best]:
    """For each arm that is compared, context and budget, its best setting with all seeds of it.

    The arms of `MAIN`, and whatever else has more than one budget: a recipe that was tried at one
    has its loss alone.
    """
    found = [Best(*key, tuple(_best(runs))) for key, runs in settings(records).items()]
    budgets = Counter((b.arm, b.size, b.context) for b in found)
    found = [b for b in found if b.arm in MAIN or budgets[b.arm, b.size, b.context] > 1]
    order = list(ARMS)
    return sorted(found, key=lambda b: (order.index(b.arm), b.size, b.context, b.tokens))
