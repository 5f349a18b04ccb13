"""The effect of schedules, recipes and other values, each against the same run without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from spherelm.paper.scaling import chance
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.chance import Noises, noises
from spherelm.paper.scaling.grid import GRID
from spherelm.paper.scaling.identity import place_of, setting_of, size_of
from spherelm.paper.scaling.point import Point
from spherelm.paper.scaling.words import SETTING, difference, setting
from spherelm.paper.store import Record
from spherelm.plots import markdown

Settings = Mapping[str, dict[int, Record]]
"""By the part of their names that seeds share, the runs by seed."""


def tables(records: Sequence[Record]) -> Iterator[str]:
    """One table, with a row for each change that was run both with and without it."""
    settings: dict[str, dict[int, Record]] = {}
    for record in records:
        name, variant = setting_of(record.id)
        if record.finished and not variant:
            settings.setdefault(name, {})[record.config.train.seed] = record
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
        run, base_run = (next(iter(each.values())) for each in (runs, base_runs))
        noise = noises.get((size_of(run.config), run.config.model.context))
        told = difference(base_run, run)
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


def _place(runs: Mapping[int, Record]) -> tuple[bool, str, bool, int, int, bool]:
    """A sort key: all changes of GPT at a budget, then all of nGPT."""
    run = next(iter(runs.values()))
    return *place_of(run.config), run.tokens, run.config.model.arch == "ngpt"
