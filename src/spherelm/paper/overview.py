"""`index.html` of a folder of reproductions: what is there, and what the paper says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from spherelm import durable, records
from spherelm.paper import registry
from spherelm.paper.size import Size
from spherelm.plots.page import CLOSING, card, opening

STYLE = """
td a { color: inherit; font-weight: 600; }
td:nth-child(2) { white-space: nowrap; }
@media (max-width: 760px) { td:nth-child(2) { white-space: normal; } }
"""


def write(out: Path, size: Size, left: Mapping[str, str]) -> Path:
    """Rewrite the page from the results in `out`; `left` says why some are missing."""
    page = out / "index.html"
    durable.write_text(page, "\n".join(_page(out, size, left)) + "\n")
    return page


def _page(out: Path, size: Size, left: Mapping[str, str]) -> Iterator[str]:
    title = f"The paper's figures and tables at size {size.name}"
    yield opening(title, STYLE)
    yield f'<header>\n<h1>{escape(title)}</h1>\n<p class="quiet">{escape(size.what)}</p>\n</header>'
    made = {name: out / name / "result.json" for name in registry.NAMES}
    rows = []
    for name, file in made.items():
        if file.is_file():
            found = records.read(file)
            title, *cells = (
                escape(records.field(found, key, str, file)) for key in ("title", "source", "paper")
            )
            cells = [f'<a href="{name}/index.html">{title}</a>', *cells]
            rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("", "where", "the paper says"))
    yield card(
        f"{len(rows)} of {len(made)} items",
        f'<div class="scroll"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>'
        + "\n".join(rows)
        + "</tbody>\n</table></div>",
    )
    if absent := [line for name, line in left.items() if not made[name].is_file()]:
        lines = "\n".join(f"<li>{escape(line)}</li>" for line in absent)
        yield card("What is not here", f"<ul>\n{lines}\n</ul>")
    yield CLOSING
