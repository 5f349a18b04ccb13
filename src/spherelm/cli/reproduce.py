"""`spherelm reproduce STUDY`: train the runs of a study, and draw its tables and figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from spherelm.errors import UserError
from spherelm.flags import parse
from spherelm.validate import require_int, require_positive


@dataclass(frozen=True)
class ReproduceFlags:
    """Train the runs of a study, one after another, and draw its tables and figures.

    Started again, it skips what is done and goes on with what was stopped. The small record of a
    run is kept in RESULTS/data/STUDY; tables and figures are made from these alone.
    """

    study: tyro.conf.Positional[Literal["scaling"]]
    """scaling: how many fewer tokens nGPT needs than a tuned GPT."""
    out: str | None = None
    """Folder for the run directories."""
    data: str | None = None
    """Folder of token shards made by `spherelm prepare`. Unset: the built-in corpus, for
    --rehearse."""
    results: str = "docs/results"
    """Folder of the page; the records are in data/STUDY inside it."""
    only: str = "*"
    """Which runs, as a pattern of their names, such as 'ngpt-4k-92m-*'."""
    workers: int = 2
    """Runs at the same time: two keep one GPU busy while one of them compiles."""
    minutes: float | None = None
    """Start no run that would not end in this time."""
    list: bool = False
    """Name the runs, each with its tokens and whether it is done, and stop."""
    dry_run: bool = False
    """Print the configuration of each run that is left, and stop."""
    redraw: bool = False
    """Only draw the tables and figures again, from the records."""
    rehearse: bool = False
    """Train every run at a tiny size and for a few steps: to see that all works."""


def main(argv: list[str]) -> int:
    flags = parse(ReproduceFlags, argv, "reproduce")
    require_int("workers", flags.workers)
    if not flags.results:
        raise UserError("results is empty; name a folder")
    if flags.minutes is not None:
        require_positive("minutes", flags.minutes)

    from spherelm.paper import store
    from spherelm.paper.scaling import grid, page

    results = Path(flags.results)
    records = results / "data" / flags.study
    if flags.redraw:
        for path in page.redraw(results):
            print(path)
        return 0
    points = grid.chosen(flags.only)
    if flags.list:
        for point in points:
            done = "done" if store.has(records, point.id) else "    "
            print(f"{done}  {point.millions:>4}M tokens  {point.id}")
        return 0
    if flags.dry_run:
        from spherelm.config_io import to_toml

        for point in points:
            if not store.has(records, point.id):
                print(f"# {point.id}\n{to_toml(point.config())}")
        return 0
    if flags.out is None:
        raise UserError("--out must be given: the folder for the run directories")
    if flags.data is None and not flags.rehearse:
        raise UserError("--data must be given: the folder of tokens that `spherelm prepare` made")

    from spherelm.paper.scaling.runner import Study

    Path(flags.out).mkdir(parents=True, exist_ok=True)
    Study(
        points,
        flags.data,
        Path(flags.out),
        records,
        workers=flags.workers,
        seconds=None if flags.minutes is None else 60 * flags.minutes,
        rehearse=flags.rehearse,
        say=lambda line: print(line, flush=True),
    ).run()
    for path in page.redraw(results):
        print(path)
    return 0
