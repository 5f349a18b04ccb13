"""The page of the study: tables and figures, from the data beside it alone.

The tables stand in a page between two marks and are written there again; all around them is
written by people.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spherelm import durable
from spherelm.errors import UserError
from spherelm.paper import store
from spherelm.paper.scaling import ablated, evaluations, settings, tables, times
from spherelm.paper.scaling import figures as pictures
from spherelm.paper.scaling.evaluations import Evaluated
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.store import Record
from spherelm.plots import svg
from spherelm.plots.chart import Chart

PAGE = "headline.md"
BEGIN, END = "<!-- scaling: begin -->", "<!-- scaling: end -->"


@dataclass(frozen=True)
class Data:
    """All that was measured: what the folder `data` of the results holds."""

    records: list[Record]
    steps: list[StepTime]
    evaluated: list[Evaluated]

    @classmethod
    def read(cls, results: Path) -> Data:
        records = store.read(results / "data" / "scaling")
        return cls(records, times.read(results), evaluations.read(results, records))

    def parts(self) -> Iterator[str]:
        """The page between its marks, a paragraph or table at a time."""
        yield from tables.runs(self.records)
        yield from tables.factors(self.records, self.steps)
        yield from tables.steps(self.steps)
        yield from evaluations.tables(self.evaluated)
        yield from ablated.tables(self.records)

    def text(self) -> str:
        return "\n\n".join(map(_wrapped, self.parts()))

    def figures(self) -> list[Chart]:
        return [*pictures.figures(self.records), *evaluations.length_charts(self.evaluated)]


def _wrapped(part: str) -> str:
    """A paragraph in lines of readable length; tables and pictures as they are."""
    return part if part.startswith(("|", "!")) else textwrap.fill(part, 100)


def redraw(results: Path) -> list[Path]:
    """Write the tables and figures in the folder `results` again from its data.

    Where it is the repository's own, also what `spherelm train` chooses from.
    """
    data = Data.read(results)
    if not any(record.finished for record in data.records):
        raise UserError(f"{results}/data/scaling holds no finished run to draw")
    page = results / PAGE
    text = page.read_text() if page.is_file() else f"# The study\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{page} has no lines {BEGIN} and {END} between which to write")
    durable.write_text(page, f"{before}{BEGIN}\n\n{data.text()}\n\n{END}{after}")
    drawn = {results / f"{c.name}.svg": svg.draw_file(c) for c in data.figures()}
    for path, picture in drawn.items():
        durable.write_text(path, picture)
    return [page, *drawn, *settings.update(results)]
