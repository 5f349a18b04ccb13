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
from spherelm.paper.scaling import (
    ablated,
    chance,
    changes,
    evaluations,
    fresh,
    needed,
    other_texts,
    rates,
    settings,
    tables,
    times,
)
from spherelm.paper.scaling import figures as pictures
from spherelm.paper.scaling.evaluations import Evaluated
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.store import Record
from spherelm.plots import svg
from spherelm.plots.chart import Chart

PAGE = "headline.md"
_FILLING = textwrap.TextWrapper(100, break_long_words=False, break_on_hyphens=False)
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
        """What the page has between its marks, a paragraph or table at a time."""
        yield from needed.tables(self.records, self.steps)
        yield from tables.steps(self.steps)
        yield from chance.tables(self.records)
        yield from fresh.tables(self.records)
        yield from rates.tables(self.records)
        yield from changes.tables(self.records)
        yield from other_texts.tables(self.evaluated)
        yield from evaluations.tables(self.evaluated)
        yield from ablated.tables(self.records)
        yield from tables.runs(self.records)

    def figures(self) -> list[Chart]:
        return [
            *pictures.figures(self.records),
            *rates.charts(self.records),
            *other_texts.charts(self.evaluated),
            *evaluations.length_charts(self.evaluated),
        ]


def _wrapped(part: str) -> str:
    """A paragraph in lines of readable length; tables and pictures as they are."""
    return part if part.startswith(("|", "!")) else _FILLING.fill(part)


def written(text: str, data: Data, page: Path) -> str:
    """The text of the page with its tables written again; also the figures that people have put
    nowhere else."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{page} has no lines {BEGIN} and {END} between which to write")
    tables = "\n\n".join(map(_wrapped, data.parts()))
    links = {f"({chart.name}.svg)": chart.title for chart in data.figures()}
    absent = [f"![{links[link]}]{link}" for link in links if link not in before + tables + after]
    return "\n\n".join((before + BEGIN, *absent, tables, END + after))


def redraw(results: Path) -> list[Path]:
    """Write the tables and figures in the folder `results` again from its data.

    Where it is the repository's own, also what `spherelm train` chooses from.
    """
    data = Data.read(results)
    if not any(record.finished for record in data.records):
        raise UserError(f"{results}/data/scaling holds no finished run to draw")
    page = results / PAGE
    text = page.read_text() if page.is_file() else f"# The study\n\n{BEGIN}\n{END}\n"
    durable.write_text(page, written(text, data, page))
    drawn = {results / f"{c.name}.svg": svg.draw_file(c) for c in data.figures()}
    for path, picture in drawn.items():
        durable.write_text(path, picture)
    return [page, *drawn, *settings.update(results)]
