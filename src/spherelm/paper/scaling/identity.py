"""Identify a run of the study: its arm, its setting, and at which size and context it was run."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.console import format_context
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.point import CONTEXT, SMALL
from spherelm.paper.store import Record


@functools.cache
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
    """Split a run's name into the part that its seeds share and its `Point.variant`, which is
    mostly empty."""
    found = re.fullmatch(r"(.*)-s\d+(?:-(.+))?", name)
    return (name, "") if found is None else (found[1], found[2] or "")


def variant_of(name: str) -> str:
    return setting_of(name)[1]


class Place(NamedTuple):
    """Where arms are compared: the size of a model, by its name in `SHAPES`, and a context."""

    size: str
    context: int

    @classmethod
    def of(cls, run: RunConfig) -> Place:
        return cls(f"{run.model.n_layers}x{run.model.d_model}", run.model.context)

    def __str__(self) -> str:
        return " and ".join(self.cells)

    @property
    def cells(self) -> tuple[str, str]:
        """As it stands in a table: 8x512 and 4k."""
        return self.size, format_context(self.context)

    def rank(self) -> tuple[bool, str, bool, int]:
        """A key that sorts by size and context, the study's own first."""
        return self.size != SMALL, self.size, self.context != CONTEXT, self.context


Runs = Mapping[int, Record]
"""The finished runs of one setting, by seed."""
Key = tuple[str, Place, int]
"""Arm, place and tokens: settings that differ only in their values."""


def by_seed(records: Sequence[Record]) -> Mapping[tuple[str, str], Runs]:
    """The runs of each setting and variant (see `setting_of`)."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        if record.finished:
            found.setdefault(setting_of(record.id), {})[record.seed] = record
    return found


def settings(records: Sequence[Record]) -> dict[Key, list[Runs]]:
    """All settings of the compared arms that were run."""
    found: dict[Key, list[Runs]] = {}
    for (_, variant), runs in by_seed(records).items():
        run = first(runs)
        arm = arm_of(run.config)
        if ARMS[arm].compared and not variant:
            found.setdefault((arm, Place.of(run.config), run.tokens), []).append(runs)
    return found


def first(runs: Runs) -> Record:
    return next(iter(runs.values()))
