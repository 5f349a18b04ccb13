"""The building blocks shared by our HTML pages: those of `compare`, `report` and `inspect`.

One look, light and dark, for desktop, phone and print; a heading, contents that stay in view, parts
in frames, charts that show their values (`hover`), tables. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from spherelm.plots import hover, style, svg
from spherelm.plots.chart import Chart, Role

MOST_COLUMNS = 9
"""A wider table is printed as a list, one cell per line."""


@dataclass(frozen=True)
class Part:
    """A part of a page, in its own frame and listed in the contents."""

    name: str
    """Its anchor in the page."""
    title: str
    content: str
    short: str | None = None
    """A different title for the contents."""


@dataclass(frozen=True)
class Named:
    """The name of a model or of a run, in its colour."""

    text: str
    role: Role


Cell = str | Named


def document(
    title: str,
    heading: str,
    lead: str,
    parts: Iterable[Part | Sequence[Part]],
    own_style: str = "",
    scripts: str = "",
) -> str:
    """A whole page; `lead` is the HTML under its heading.

    Parts given as a sequence stand side by side if there is room. `own_style` (CSS) and `scripts`
    (elements) are added to those that all pages have.
    """
    contents: list[str] = []
    cards: list[str] = []
    for part in parts:
        beside = [part] if isinstance(part, Part) else part
        for each in beside:
            link = f'<a href="#{each.name}">{escape(each.short or each.title)}</a>'
            contents.append(f"<li>{link}</li>")
        found = [card(each.title, each.content, each.name) for each in beside]
        cards += found if isinstance(part, Part) else ['<div class="pair">', *found, "</div>"]
    page = (
        opening(title, own_style),
        f"<header>\n<h1>{escape(heading)}</h1>\n{lead}\n</header>",
        '<nav class="contents" aria-label="contents">\n<ul>',
        *contents,
        "</ul>\n</nav>",
        *cards,
        scripts + CLOSING,
    )
    return "\n".join(page) + "\n"


def opening(title: str, own_style: str = "") -> str:
    """A page up to its content; `CLOSING` ends it."""
    styles = svg.STYLE + style.STYLE + hover.STYLE + own_style
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{styles}</style>\n</head>\n<body>\n<main>"
    )


CLOSING = f"</main>\n<script>{hover.SCRIPT}</script>\n</body>\n</html>"


def card(title: str, content: str, name: str = "") -> str:
    """A part of a page in its own frame."""
    address = f' id="{name}"' if name else ""
    heading = f"<h2>{escape(title)}</h2>"
    return f'<section class="card"{address}>\n{heading}\n{content}\n</section>'


def figure(content: str, caption: str) -> str:
    """A picture with a sentence under it."""
    return f"<figure>\n{content}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def pictures(shown: Iterable[tuple[Chart, str]], kind: str = "") -> str:
    """Charts with their captions, two in a row, each with its title above it."""
    figures = (
        figure(f"<h3>{escape(chart.title)}</h3>\n{svg.draw(chart)}", caption)
        for chart, caption in shown
    )
    return "\n".join((f'<div class="{f"pictures {kind}".strip()}">', *figures, "</div>"))


def table(
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    kind: str = "",
    stacked: bool = False,
) -> str:
    """A table; the first cell of each row is its name.

    A table that is too wide scrolls sideways; on a phone a `stacked` one shows each cell on its own
    line, after the column's head.
    """
    many = "many" if stacked and len(head) > MOST_COLUMNS else ""
    kinds = " ".join(word for word in (kind, "stacked" if stacked else "", many) if word)
    lines = [f'<table class="{kinds}">' if kinds else "<table>", "\n<thead><tr>"]
    lines += [_cell("th", cell, ' scope="col"') for cell in head]
    lines.append("</tr></thead>\n<tbody>")
    labels = [cell.text if isinstance(cell, Named) else cell for cell in head]
    for first, *others in rows:
        lines.append("<tr>" + _cell("th", first, ' scope="row"'))
        for label, cell in zip(labels[1:], others, strict=True):
            said = f' data-label="{escape(label)}"' if stacked and label else ""
            lines.append(_cell("td", cell, said))
        lines.append("</tr>")
    lines.append("</tbody>\n</table>")
    return f'<div class="scroll">{"".join(lines)}</div>'


def _cell(kind: str, cell: Cell, attributes: str = "") -> str:
    if isinstance(cell, Named):
        attributes += f' class="{cell.role}-name"'
        cell = cell.text
    return f"<{kind}{attributes}>{escape(cell)}</{kind}>"


def data_element(name: str, value: Any) -> str:
    """A value as JSON for a script to read, escaped so that nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def sample(prompt: str, text: str) -> str:
    """A text that a model wrote, after its prompt."""
    return f'<pre><span class="prompt">{escape(prompt)}</span>{escape(text)}</pre>'
