"""The look of our pages: on a desktop, on a phone, in print. The colours come from `svg`."""

from __future__ import annotations

from spherelm.plots import svg
from spherelm.plots.chart import COLOURS

_DESK = """
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
"""


def _stacked(kind: str) -> str:
    """CSS for tables that show each cell on its own line, after the column's head."""
    return f"""
  {kind} thead {{ display: none; }}
  {kind} tr {{ display: block; border-top: 1px solid var(--grid); padding: .5rem 0; }}
  {kind} th, {kind} td {{ display: block; border: 0; padding: .1rem 0; white-space: normal;
    overflow-wrap: anywhere; }}
  {kind} tbody th {{ font-weight: 600; }}
  {kind} td:empty {{ display: none; }}
  {kind} td[data-label]::before {{ content: attr(data-label) ": "; color: var(--quiet); }}
"""


_PHONE = (
    """
@media screen and (max-width: 760px) {
  .pair, .pictures { grid-template-columns: minmax(0, 1fr); }
  main { padding: 1.25rem .75rem 2rem; }
  .card { padding: 1rem .85rem; }
  .contents ul { flex-wrap: nowrap; overflow-x: auto; scrollbar-width: none; }
  .numbers { font-size: .9rem; }
  .numbers td { white-space: normal; }
"""
    + _stacked(".stacked")
    + "}"
)

_PAPER = (
    """
@media print {
  :root { color-scheme: light; }
  body { background: none; font-size: 11pt; }
  main { max-width: none; padding: 0; }
  .contents { display: none; }
  .card { border: 0; border-top: 1px solid var(--grid); border-radius: 0; padding: .75rem 0; }
  h2, h3 { break-after: avoid; }
  tr, pre { break-inside: avoid; }
  .scroll { overflow: visible; }
"""
    + _stacked(".many")
    + "}"
)

_NAMES = "\n".join(f".{role}-name {{ color: var(--{role}); }}" for role in COLOURS)

_SMALL = f".pair svg.chart, .pictures svg.chart {{ font-size: {svg.LARGEST_TYPE}px; }}"

STYLE = "\n".join((_DESK, _PHONE, _PAPER, _SMALL, _NAMES))
"""The style of every page; that of charts is `svg.STYLE`, of values under the pointer
`hover.STYLE`."""
