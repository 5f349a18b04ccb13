"""The pages of the study: text written by people and, between marks, parts generated from its data.

    <!-- scaling: NAME -->    a section by its name, such as `steps`
    <!-- scaling: rest -->    every section and figure that has no mark of its own on a page
    <!-- scaling: end -->

Whatever is between two marks is rewritten; everything around them is left as it is.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
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
    widths,
)
from spherelm.paper.scaling import figures as pictures
from spherelm.paper.scaling.evaluations import Evaluated
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.scaling.widths import Ended
from spherelm.paper.store import Record
from spherelm.plots import markdown, svg
from spherelm.plots.chart import Chart

PAGE, TABLES, WIDTH = "headline.md", "headline-tables.md", "width.md"
"""The findings, every table behind them, and rates by width. Only the first page must exist."""
REST = "rest"
BEGIN, END = f"<!-- scaling: {REST} -->", "<!-- scaling: end -->"
_MARKED = re.compile(
    rf"<!-- scaling: (?!end )(\S+) -->\n((?!<!-- scaling: ).)*?{re.escape(END)}", re.DOTALL
)
_FILLING = textwrap.TextWrapper(100, break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True)
class Section:
    """A generated section, made of paragraphs, tables and pictures."""

    title: str
    parts: Sequence[str]

    def __str__(self) -> str:
        return "\n\n".join(map(_wrapped, self.parts))


@dataclass(frozen=True)
class Data:
    """All measurements: the contents of the folder `data` of the results."""

    records: list[Record]
    steps: list[StepTime]
    evaluated: list[Evaluated]
    widths: list[Ended]

    @classmethod
    def read(cls, results: Path) -> Data:
        records = store.read(results / "data" / "scaling")
        evaluated = evaluations.read(results, records)
        return cls(records, times.read(results), evaluated, widths.read(results))

    def sections(self) -> dict[str, Section]:
        """The sections by name, leaving out those without measurements."""
        runs, steps, evaluated = self.records, self.steps, self.evaluated
        ends = needed.Ends.of(runs)
        every: dict[str, tuple[str, Iterator[str]]] = {
            "answer": ("The answer", needed.sentence(ends)),
            "shares": ("What nGPT needs of a baseline's tokens", needed.shares(ends, steps)),
            "factors": ("What a baseline needs of nGPT's tokens", needed.factors(ends, steps)),
            "steps": ("How long a step takes", tables.steps(steps)),
            "seeds": ("What seeds do", chance.tables(runs)),
            "fresh": ("Seeds that chose nothing", fresh.tables(runs)),
            "rates": ("Every rate and its loss", rates.tables(runs)),
            "changes": ("What a change does", changes.tables(runs)),
            "texts": ("Other held-out text", other_texts.tables(evaluated)),
            "tasks": ("Tasks", evaluations.task_table(evaluated)),
            "lengths": ("Longer contexts", evaluations.length_table(evaluated)),
            "ablations": ("The paper's ablations", ablated.tables(runs)),
            "tried": ("How many settings each arm was given", tables.tried(runs)),
            "runs": ("Every run", tables.runs(runs)),
            "widths": ("The best rate by width", widths.tables(self.widths)),
        }
        found = {name: Section(title, [*parts]) for name, (title, parts) in every.items()}
        return {name: section for name, section in found.items() if section.parts}

    def figures(self) -> list[Chart]:
        return [
            *pictures.figures(self.records),
            *rates.charts(self.records),
            *other_texts.charts(self.evaluated),
            *evaluations.length_charts(self.evaluated),
            *widths.charts(self.widths),
        ]


def _wrapped(part: str) -> str:
    """Wrap a paragraph to a readable width; leave tables and pictures as they are."""
    return part if part.startswith(("|", "!")) else _FILLING.fill(part)


def written(pages: Mapping[Path, str], data: Data) -> dict[Path, str]:
    """The texts of the pages, with the parts between their marks rewritten."""
    sections = data.sections()
    named = {mark[1] for text in pages.values() for mark in _MARKED.finditer(text)}
    if not named:
        raise UserError(f"{' and '.join(map(str, pages))} has no lines {BEGIN} and {END}")
    if unknown := named - {REST, *sections}:
        raise UserError(f"no table is called {min(unknown)!r}; there are {', '.join(sections)}")
    by_people = "".join(_MARKED.sub("", text) for text in pages.values())
    if "<!-- scaling: " in by_people:
        where = " or ".join(map(str, pages))
        raise UserError(f"in {where} a <!-- scaling: NAME --> has no {END} of its own; add it")
    taken = by_people + "".join(part for each in sections.values() for part in each.parts)
    absent = [f for f in data.figures() if f"({f.name}.svg)" not in taken]
    rest = [part for each in absent for part in markdown.picture(each.title, f"{each.name}.svg")]
    for name, section in sections.items():
        if name not in named:
            rest += [f"## {section.title}", str(section)]

    def filled(mark: re.Match[str]) -> str:
        inside = "\n\n".join(rest) if mark[1] == REST else str(sections[mark[1]])
        return f"<!-- scaling: {mark[1]} -->\n\n{inside}\n\n{END}"

    return {page: _MARKED.sub(filled, text) for page, text in pages.items()}


def read_pages(results: Path) -> dict[Path, str]:
    """The existing pages, or a new one if there are none."""
    paths = [results / name for name in (PAGE, TABLES, WIDTH)]
    pages = {path: path.read_text() for path in paths if path.is_file()}
    return pages or {results / PAGE: f"# The study\n\n{BEGIN}\n{END}\n"}


def redraw(results: Path) -> list[Path]:
    """Rewrite the tables and figures in the folder `results` from its data.

    If it is the repository's own, also the settings that `spherelm train` chooses from.
    """
    data = Data.read(results)
    if not any(record.finished for record in data.records):
        raise UserError(f"{results}/data/scaling holds no finished run to draw")
    drawn = written(read_pages(results), data)
    drawn |= {results / f"{c.name}.svg": svg.draw_file(c) for c in data.figures()}
    for path, content in drawn.items():
        durable.write_text(path, content)
    return [*drawn, *settings.update(results)]
