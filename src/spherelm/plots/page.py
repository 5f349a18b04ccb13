"""What our pages are made of, so that they are one family: `compare`'s, `report`'s and `inspect`'s.

One look, light and dark, for a desk, a phone and paper; a heading, contents that stay in sight,
parts in frames, pictures that tell their values (`hover`), tables. Nothing is loaded from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from spherelm.plots import hover, svg
from spherelm.plots.chart import COLOURS, Chart, Role

STYLE = (
    """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 .5rem;
  text-wrap: balance; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1rem 0 .35rem; }
p { margin: .4rem 0; max-width: 46rem; }
a { color: inherit; text-underline-offset: .15em; }
.quiet, figcaption { color: var(--quiet); }
.contents { position: sticky; top: 0; z-index: 2; background: var(--page); margin: .75rem 0 0;
  border-bottom: 1px solid var(--grid); }
.contents ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1.1rem; margin: 0;
  padding: .45rem 0; font-size: .9rem; }
.contents a { color: var(--quiet); text-decoration: none; white-space: nowrap; line-height: 1.7; }
.contents a:hover, .contents a:focus-visible { color: var(--text); text-decoration: underline; }
.card {
  background: var(--card); border: 1px solid var(--grid); border-radius: .75rem;
  padding: 1.25rem; margin: 1.25rem 0 0; min-width: 0;
}
.pair { display: grid; gap: 0 1.25rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
.pictures { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
.pair svg.chart, .pictures svg.chart { font-size: """
    f"{svg.LARGEST_TYPE}px; }}"
    """
.pictures h3 { margin-top: .25rem; }
figure { margin: 0; break-inside: avoid; min-width: 0; }
figcaption { font-size: .9rem; margin-top: .5rem; max-width: 46rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .45rem .75rem .45rem 0; border-top: 1px solid var(--grid);
  vertical-align: top; }
thead th { border-top: 0; }
tbody th { font-weight: 400; }
tbody th[class] { font-weight: 600; }
.numbers { max-width: 36rem; }
.numbers td, .numbers thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.scroll { overflow-x: auto; }
pre {
  margin: 0; font: .85rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
pre .prompt { color: var(--quiet); }
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
@media screen and (max-width: 760px) {
  .pair, .pictures { grid-template-columns: minmax(0, 1fr); }
  main { padding: 1.25rem .75rem 2rem; }
  .card { padding: 1rem .85rem; }
  .contents ul { flex-wrap: nowrap; overflow-x: auto; scrollbar-width: none; }
  .numbers { font-size: .9rem; }
  .numbers td { white-space: normal; }
  .stacked thead { display: none; }
  .stacked tr { display: block; border-top: 1px solid var(--grid); padding: .5rem 0; }
  .stacked th, .stacked td { display: block; border: 0; padding: .1rem 0; white-space: normal;
    overflow-wrap: anywhere; }
  .stacked tbody th { font-weight: 600; }
  .stacked td:empty { display: none; }
  .stacked td[data-label]::before { content: attr(data-label) ": "; color: var(--quiet); }
}
@media print {
  :root { color-scheme: light; }
  body { background: none; font-size: 11pt; }
  main { max-width: none; padding: 0; }
  .contents { display: none; }
  .card { border: 0; border-top: 1px solid var(--grid); border-radius: 0; padding: .75rem 0; }
  h2, h3 { break-after: avoid; }
  tr, pre { break-inside: avoid; }
  .scroll { overflow: visible; }
}
""" + "\n".join(f".{role}-name {{ color: var(--{role}); }}" for role in COLOURS)
)


@dataclass(frozen=True)
class Part:
    """A part of a page, in a frame of its own; the contents lead to it."""

    name: str
    """Its address in the page."""
    title: str
    content: str
    short: str | None = None
    """Its title among the contents, where that is another."""


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
    style: str = "",
    scripts: str = "",
) -> str:
    """A whole page; `lead` is what stands under its heading, as HTML.

    Parts that come as a sequence stand side by side where there is room. `style` and `scripts`
    (elements) are added to what all pages have.
    """
    return "\n".join(_document(title, heading, lead, list(parts), style, scripts)) + "\n"


def _document(
    title: str,
    heading: str,
    lead: str,
    parts: list[Part | Sequence[Part]],
    style: str,
    scripts: str,
) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{svg.STYLE}{STYLE}{hover.STYLE}{style}</style>\n</head>\n<body>\n<main>"
    yield f"<header>\n<h1>{escape(heading)}</h1>\n{lead}\n</header>"
    yield '<nav class="contents" aria-label="contents">\n<ul>'
    for part in parts:
        for each in (part,) if isinstance(part, Part) else part:
            yield f'<li><a href="#{each.name}">{escape(each.short or each.title)}</a></li>'
    yield "</ul>\n</nav>"
    for part in parts:
        if isinstance(part, Part):
            yield _card(part)
        else:
            yield '<div class="pair">'
            yield from map(_card, part)
            yield "</div>"
    yield f"</main>\n{scripts}<script>{hover.SCRIPT}</script>\n</body>\n</html>"


def _card(part: Part) -> str:
    title = f"<h2>{escape(part.title)}</h2>"
    return f'<section class="card" id="{part.name}">\n{title}\n{part.content}\n</section>'


def figure(content: str, caption: str) -> str:
    """A picture with a sentence under it."""
    return f"<figure>\n{content}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def pictures(shown: Iterable[tuple[Chart, str]]) -> str:
    """Charts two in a row, each with its title and a sentence under it."""
    figures = (
        figure(f"<h3>{escape(chart.title)}</h3>\n{svg.draw(chart)}", caption)
        for chart, caption in shown
    )
    return "\n".join(('<div class="pictures">', *figures, "</div>"))


def table(
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    kind: str = "",
    stacked: bool = False,
) -> str:
    """A table; the first cell of a row is its name.

    One that is too wide can be pushed aside; a `stacked` one has a line a cell on a phone, behind
    the head of its column.
    """
    kinds = " ".join(word for word in (kind, "stacked" if stacked else "") if word)
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
    """A value inside a page, for a script to read; nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def sample(prompt: str, text: str) -> str:
    """A text that a model wrote, behind its prompt."""
    return f'<pre><span class="prompt">{escape(prompt)}</span>{escape(text)}</pre>'
