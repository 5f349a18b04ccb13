"""An item's result as a page, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.console import counted
from spherelm.paper import reported
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.size import Size
from spherelm.paper.store import Record
from spherelm.plots import markdown, svg
from spherelm.plots.chart import Picture
from spherelm.plots.page import CLOSING, card, opening, pictures

STYLE = """
.narrow { max-width: 46rem; }
.scroll th, .scroll td { padding-right: 1.1rem; }
.scroll tr > :last-child { padding-right: .25rem; }
thead th { vertical-align: bottom; font-weight: 600; }
thead th small { display: block; font-weight: 400; color: var(--quiet); }
td.number, th.number { text-align: right; }
td.paper, th.paper { color: var(--quiet); font-style: italic; }
tbody td { white-space: nowrap; }
tbody td.long { white-space: normal; min-width: 13rem; }
.wide { font-size: .88rem; }
.pictures.one { grid-template-columns: minmax(0, 54rem); }
@media (min-width: 601px) {
  .pictures svg.chart { font-size: 18px; }
  .pictures.one svg.chart { font-size: 15px; }
}
main { max-width: 74rem; }
@media screen and (max-width: 600px) {
  .scroll th, .scroll td { padding-right: .75rem; }
  .narrow { font-size: .9rem; }
  .narrow td.long { min-width: 8rem; }
}
summary { cursor: pointer; }
"""
NARROW, WIDE = 6, 8
"""A table with fewer columns than NARROW is narrower than the page; with more than WIDE its type is
smaller."""
SHORT = 20
"""A first table of at most this many rows comes before the pictures."""
LONG = 30
"""A text cell longer than this may wrap."""


@dataclasses.dataclass(frozen=True)
class Page:
    """Everything that the pages of an item contain."""

    item: Item
    size: Size
    result: Result
    runs: Sequence[Record]
    data: str
    """What the runs were trained on, in words."""

    @property
    def subtitle(self) -> str:
        return f"{self.item.source} of the paper, at size {self.size.name}: {self.size.what}."

    @property
    def paper(self) -> str:
        """What the paper found, in a sentence or two."""
        return reported.FINDINGS[self.item.name]

    @property
    def caveat(self) -> str:
        """What results at this size cannot show; empty if nothing was trained."""
        return self.size.caveat if self.runs else ""


def write(page: Page, folder: Path) -> None:
    """Write the page, its tables as Markdown, all numbers as JSON and the pictures as SVG."""
    svg.write([each.chart for each in page.result.figures], folder / "pictures")
    durable.write_json(folder / "result.json", as_json(page))
    for name, lines in (("result.md", _markdown(page)), ("index.html", _html(page))):
        durable.write_text(folder / name, "\n".join(lines) + "\n")


# --- JSON ----------------------------------------------------------------------------------------


def as_json(page: Page) -> dict[str, Any]:
    """All numbers, with their names and units."""
    return {
        "item": page.item.name,
        "source": page.item.source,
        "title": page.item.title,
        "size": page.size.name,
        "data": page.data,
        "paper": page.paper,
        "caveat": page.caveat,
        "notes": list(page.result.notes),
        "tables": [_table_as_json(table) for table in page.result.tables],
        "figures": [_figure_as_json(each) for each in page.result.figures],
        "runs": [_run_as_json(run) for run in page.runs],
    }


def _table_as_json(table: Table) -> dict[str, Any]:
    columns = [{"name": c.name, "unit": c.unit, "whose": c.whose} for c in table.columns]
    rows = [list(row) for row in table.rows]
    return {"name": table.name, "title": table.title, "columns": columns, "rows": rows}


def _figure_as_json(each: Picture) -> dict[str, Any]:
    chart = each.chart
    return {
        "name": chart.name,
        "title": chart.title,
        "x": chart.x.label,
        "y": chart.y.label,
        "caption": each.caption,
        "series": [
            {"label": line.label, "points": [list(point) for point in line.points]}
            for line in chart.series
        ],
    }


def _run_as_json(run: Record) -> dict[str, Any]:
    return {
        "id": run.id,
        "finished": run.finished,
        "tokens": run.tokens,
        "loss": run.loss if run.finished else None,
        "seconds": run.seconds,
        "made_with": dict(run.made_with),
    }


# --- Markdown ------------------------------------------------------------------------------------


def _markdown(page: Page) -> Iterator[str]:
    """Tables and pictures, to paste into a document."""
    result = page.result
    yield f"# {page.item.title}"
    yield f"\n{page.subtitle}\n\nThe paper: {page.paper}"
    if page.caveat:
        yield f"\nHere: {page.caveat}"
    for table in result.tables:
        rows = (
            [c.show(cell) for c, cell in zip(table.columns, row, strict=True)] for row in table.rows
        )
        head = [column.head for column in table.columns]
        yield f"\n## {table.title}\n\n{markdown.table(head, rows)}"
    for each in result.figures:
        yield f"\n## {each.chart.title}\n\n![{each.chart.title}](pictures/{each.chart.name}.svg)"
        yield f"\n{each.caption}"
    yield "\n## What to know\n"
    trained = f"Trained on {page.data}." if page.runs else "Nothing had to be trained for it."
    yield from (f"- {note}" for note in (*result.notes, trained))


# --- HTML ----------------------------------------------------------------------------------------


def _html(page: Page) -> Iterator[str]:
    """One self-contained page."""
    result = page.result
    yield opening(f"{page.item.title} ({page.item.source})", STYLE)
    yield f"<header>\n<h1>{escape(page.item.title)}</h1>"
    yield f'<p class="quiet">{escape(page.subtitle)}</p>'
    yield f"<p><strong>The paper:</strong> {escape(page.paper)}</p>"
    if page.caveat:
        yield f"<p><strong>Here:</strong> {escape(page.caveat)}</p>"
    yield "</header>"
    tables = [card(table.title, "\n".join(_table(table))) for table in result.tables]
    shown = []
    if result.figures:
        one = len(result.figures) == 1
        title = "The figure" if one else "The figures"
        shown = [card(title, pictures(result.figures, "one" if one else ""))]
    # A short table first, then the pictures, then the long tables.
    first = 1 if result.tables and len(result.tables[0].rows) <= SHORT else 0
    yield from [*tables[:first], *shown, *tables[first:]]
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in result.notes)
    yield card("What to know", f"<ul>\n{notes}\n</ul>")
    yield card("How it was made", "\n".join(_made(page)))
    yield CLOSING


def _table(table: Table) -> Iterator[str]:
    numbers = [_is_number(table, place) for place in range(len(table.columns))]
    breadth = "narrow" if len(table.columns) < NARROW else "wide" if len(numbers) > WIDE else ""
    yield f'<div class="scroll"><table class="{breadth}">\n<thead><tr>'
    for column, number in zip(table.columns, numbers, strict=True):
        yield f'<th scope="col"{_class(column, number)}>{_head(column)}</th>'
    yield "</tr></thead>\n<tbody>"
    for row in table.rows:
        cells = [
            f"<td{_class(column, number, cell)}>{escape(column.show(cell))}</td>"
            for column, number, cell in zip(table.columns, numbers, row, strict=True)
        ]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody>\n</table></div>"


def _is_number(table: Table, place: int) -> bool:
    return not any(isinstance(row[place], str) for row in table.rows)


def _class(column: Column, number: bool, cell: Cell = None) -> str:
    words = [*(["number"] if number else []), *(["paper"] if column.whose == "paper" else [])]
    words += ["long"] if isinstance(cell, str) and len(cell) > LONG else []
    return f' class="{" ".join(words)}"' if words else ""


def _head(column: Column) -> str:
    said = {"": "", "ours": "here", "paper": "in the paper"}[column.whose]
    small = ", ".join(word for word in (said, column.unit) if word)
    return escape(column.name) + (f"<small>{escape(small)}</small>" if small else "")


def _made(page: Page) -> Iterator[str]:
    name = page.item.name
    yield f"<p><code>spherelm reproduce {name} --size {page.size.name} --out DIR</code></p>"
    if not page.runs:
        yield "<p>Nothing had to be trained for it.</p>"
        return
    seconds = sum(run.seconds for run in page.runs)
    yield (
        f'<p class="quiet">{counted(len(page.runs), "run")} on {escape(page.data)}, '
        f"{seconds:,.0f} seconds of training steps in all; runs may serve other items, too. "
        f"{_versions(page.runs)}</p>"
    )
    columns = [
        Column("run"),
        Column("tokens"),
        Column("final loss", "nats", digits=4),
        Column("training steps", "s", digits=1),
    ]
    rows = [
        (run.id, run.tokens, run.loss if run.finished else "diverged", run.seconds)
        for run in page.runs
    ]
    yield "<details>\n<summary>All runs</summary>"
    yield from _table(Table("runs", "", columns, rows))
    yield "</details>"


def _versions(runs: Sequence[Record]) -> str:
    machines = sorted({str(run.made_with.get("gpu") or "CPU") for run in runs})
    torch = sorted({str(run.made_with.get("torch", "?")) for run in runs})
    days = sorted({str(run.made_with.get("started", ""))[:10] for run in runs} - {""})
    when = f", {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") if days else ""
    return escape(f"On {', '.join(machines)} with torch {', '.join(torch)}{when}.")
