"""What our pages share: one look, light and dark, for a desk, a phone and paper; nothing loaded."""

from __future__ import annotations

from html import escape

from spherelm.plots import svg

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --quiet: #5b6570; --grid: #d9dee4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1d2127; --text: #e6e9ed; --quiet: #9aa5b1; --grid: #363d46;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 .5rem;
  text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
p { margin: .4rem 0; max-width: 46rem; }
.quiet, figcaption, caption { color: var(--quiet); }
.card {
  background: var(--card); border: 1px solid var(--grid); border-radius: .75rem;
  padding: 1.25rem; margin: 1.25rem 0 0; min-width: 0;
}
.pair { display: grid; gap: 0 1.25rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
figure { margin: 0; }
figcaption { font-size: .9rem; margin-top: .75rem; max-width: 46rem; }
.numbers { max-width: 36rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .45rem .75rem .45rem 0; border-top: 1px solid var(--grid);
  vertical-align: top; }
thead th { border-top: 0; }
.numbers td, .numbers thead th:not(:first-child) { text-align: right; white-space: nowrap; }
tbody th { font-weight: 400; }
.gpt-name { color: var(--gpt); } .ngpt-name { color: var(--ngpt); }
.scroll { overflow-x: auto; }
pre {
  margin: 0; font: .85rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
@media (max-width: 760px) {
  .pair { grid-template-columns: minmax(0, 1fr); }
  main { padding: 1.25rem .75rem 2rem; }
  .card { padding: 1rem .85rem; }
}
@media print {
  .card { break-inside: avoid; }
  main { max-width: none; padding: 0; }
}
"""

CLOSING = "</main>\n</body>\n</html>"


def opening(title: str, style: str = "") -> str:
    """The page up to its content; `style` is added to what all pages have."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{STYLE}{svg.STYLE}{style}</style>\n</head>\n<body>\n<main>"
    )


def figure(content: str, caption: str) -> str:
    """A picture with a sentence under it."""
    return f"<figure>\n{content}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def card(title: str, content: str) -> str:
    """A part of the page in a frame of its own."""
    return f'<section class="card">\n<h2>{escape(title)}</h2>\n{content}\n</section>'
