"""What schedules, recipes and other values give: each against the same run without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from spherelm.paper.scaling import chance
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.best import place_of, setting_of, size_of
from spherelm.paper.scaling.chance import Noises, noises
from spherelm.paper.scaling.grid import GRID, Point
from spherelm.paper.scaling.words import SETTING, setting
from spherelm.paper.store import Record
from spherelm.plots import markdown

Settings = Mapping[str, dict[int, Record]]
"""Runs by seed, by what their names have in common."""


def tables(records: Sequence[Record]) -> Iterator[str]:
    """One table, where a change was run and the same without it."""
    settings: dict[str, dict[int, Record]] = {}
    for record in records:
        name, variant = setting_of(record.id)
        if record.finished and not variant:
            settings.setdefault(name, {})[record.config.train.seed] = record
    rows = list(_rows(settings, noises(records)))
    if rows:
        yield (
            "What one change does, of schedule, recipe, precision or a starting value: each run "
            f"against the same one without it. {chance.BY_CHANCE}"
        )
        yield markdown.table((*SETTING, *chance.COLUMNS), rows)


def _rows(settings: Settings, noises: Noises) -> Iterator[list[str]]:
    bases = ((point, unchanged(point)) for point in GRID)
    pairs = {_name(point): _name(base) for point, base in bases if base is not None}
    found = [changed for changed, base in pairs.items() if {changed, base} <= settings.keys()]
    for changed in sorted(found, key=lambda name: _place(settings[name])):
        base = pairs[changed]
        run = next(iter(settings[changed].values()))
        noise = noises.get((size_of(run.config), run.config.model.context))
        yield [*setting(run), *chance.cells(settings[changed], settings[base], noise)]


def unchanged(point: Point) -> Point | None:
    """The point that a point is one change of; None for arms, rates and the paper's ablations."""
    if point.variant:
        return None
    if point.tuned:
        return dataclasses.replace(point, tuned=())
    if point.schedule != "linear":
        return dataclasses.replace(point, schedule="linear", log_rho=None)
    base = ARMS[point.arm].base
    return dataclasses.replace(point, arm=base, lr=point.peak) if base else None


def _name(point: Point) -> str:
    return setting_of(point.id)[0]


def _place(runs: Mapping[int, Record]) -> tuple[bool, str, int, int, bool]:
    """All changes of GPT at a budget, then all of nGPT."""
    run = next(iter(runs.values()))
    return *place_of(run.config), run.tokens, run.config.model.arch == "ngpt"
