"""The effect of schedules, recipes and other values, each against the same run without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from spherelm.paper.scaling import chance
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.chance import Noises, noises
from spherelm.paper.scaling.grid import GRID
from spherelm.paper.scaling.identity import Place, Runs, by_seed, first, setting_of
from spherelm.paper.scaling.point import Point
from spherelm.paper.scaling.words import SETTING, difference, setting
from spherelm.paper.store import Record
from spherelm.plots import markdown

Settings = Mapping[str, Runs]
"""By the part of their names that seeds share."""


def tables(records: Sequence[Record]) -> Iterator[str]:
    """One table, with a row for each change that was run both with and without it."""
    settings = {name: runs for (name, variant), runs in by_seed(records).items() if not variant}
    rows = list(_rows(settings, noises(records)))
    if rows:
        yield (
            "A change of schedule, recipe, precision or a starting value: each run "
            "against the same one without it, losses and differences of the seeds that both have. "
            f"{chance.BY_CHANCE}"
        )
        yield markdown.table((*SETTING, "change", *chance.COLUMNS), rows)


def _rows(settings: Settings, noises: Noises) -> Iterator[list[str]]:
    pairs = {}
    for point in GRID:
        names = (setting_of(base.id)[0] for base in unchanged(point))
        base = next((name for name in names if name in settings), None)
        changed = setting_of(point.id)[0]
        if base is not None and changed in settings:
            pairs[changed] = base
    for changed in sorted(pairs, key=lambda name: _place(settings[name])):
        runs, base_runs = settings[changed], settings[pairs[changed]]
        run, base_run = first(runs), first(base_runs)
        noise, told = noises.get(Place.of(run.config)), difference(base_run, run)
        yield [*setting(base_run), told, *chance.cells(runs, base_runs, noise)]


def unchanged(point: Point) -> Iterator[Point]:
    """The points that a point can be compared with as a change, the nearest first; none for arms,
    rates and the paper's ablations."""
    if point.variant:
        return
    if base := ARMS[point.arm].base:
        yield dataclasses.replace(point, arm=base)
    elif point.tuned:
        for kept in reversed(range(len(point.tuned))):
            yield dataclasses.replace(point, tuned=point.tuned[:kept])
    elif point.schedule != "linear":
        yield dataclasses.replace(point, schedule="linear", log_rho=None)


def _place(runs: Runs) -> tuple[object, ...]:
    """A sort key: all changes of GPT at a budget, then all of nGPT."""
    run = first(runs)
    return Place.of(run.config).rank(), run.tokens, run.config.model.arch == "ngpt"
