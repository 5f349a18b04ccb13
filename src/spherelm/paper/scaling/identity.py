"""Identify a run of the study: its arm, the size of its model, its place in tables, its setting."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Sequence

from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
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


def size_of(run: RunConfig) -> str:
    """The name of a run's model in `SHAPES`."""
    return f"{run.model.n_layers}x{run.model.d_model}"


def place(size: str, context: int) -> tuple[bool, str, bool, int]:
    """A key that sorts by size and context, the study's own first."""
    return size != SMALL, size, context != CONTEXT, context


def place_of(run: RunConfig) -> tuple[bool, str, bool, int]:
    return place(size_of(run), run.model.context)


def settings(records: Sequence[Record]) -> dict[tuple[str, str, int, int], list[list[Record]]]:
    """By (arm, size, context, tokens), the runs of each setting, for all compared arms."""
    found: dict[tuple[str, str, int, int], dict[str, list[Record]]] = {}
    for record in records:
        arm = arm_of(record.config)
        if record.finished and ARMS[arm].compared and not variant_of(record.id):
            model = record.config.model
            key = (arm, size_of(record.config), model.context, record.tokens)
            found.setdefault(key, defaultdict(list))[setting_of(record.id)[0]].append(record)
    return {key: list(runs.values()) for key, runs in found.items()}
