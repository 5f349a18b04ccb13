"""Select runs by name, as `--only` does."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import TypeVar

from spherelm.errors import UserError

T = TypeVar("T")


def named(runs: Iterable[T], patterns: str, name: Callable[[T], str], listed_by: str) -> list[T]:
    """The runs whose names match one of the comma-separated shell patterns, such as
    'ngpt-4k-92m-*', in the order of the patterns. A pattern without a match is refused."""
    runs = list(runs)
    found: dict[str, T] = {}
    for pattern in map(str.strip, patterns.split(",")):
        fitting = {name(r): r for r in runs if fnmatch.fnmatchcase(name(r), pattern)}
        if not fitting and runs:
            raise UserError(f"no run is called {pattern!r}; {listed_by} names them all")
        found |= fitting  # a run found before keeps its place
    return list(found.values())
