"""`report.html`: a comparison on one page that needs nothing from anywhere else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from html import escape

from spherelm.compare.charts import charts_of
from spherelm.compare.departures import departures
from spherelm.compare.pair import Comparison, Side
from spherelm.compare.table import caveat, rows, verdict
from spherelm.model.flops import count_parameters
from spherelm.plots import svg
from spherelm.training.report.reporter import format_count

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
pre .prompt { color: var(--quiet); }
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
@media (max-width: 760px) {
  .pair { grid-template-columns: minmax(0, 1fr); }
  main { padding: 1.25rem .75rem 2rem; }
  .card { padding: 1rem .85rem; }
  .departures thead { display: none; }
  .departures tr { display: block; border-top: 1px solid var(--grid); padding: .5rem 0; }
  .departures th, .departures td { display: block; border: 0; padding: .1rem 0; }
  .departures th { font-weight: 600; }
  .departures td::before { content: attr(data-label); color: var(--quiet); }
}
"""


def render(comparison: Comparison) -> str:
    """The page as HTML."""
    return "\n".join(_page(comparison)) + "\n"


def _page(c: Comparison) -> Iterator[str]:
    title = f"GPT and nGPT on the same tokens: {c.preset}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{STYLE}{svg.STYLE}</style>\n</head>\n<body>\n<main>"
    yield f"<header>\n<h1>{escape(verdict(c))}</h1>\n{_subtitle(c)}\n</header>"
    hero, *others = charts_of(c)
    yield _card(hero.title, _figure(svg.draw(hero), _crossing_note(c)))
    yield _card("In numbers", "\n".join(_numbers(c)))
    if c.samples:
        yield '<div class="pair">'
        for side in c.sides:
            yield _card(f"{side.name} writes", _sample(c, side))
        yield "</div>"
    yield '<div class="pair">'
    captions = (
        "Steps alone, at the median time of a step on this machine; evaluations and checkpoints "
        "are left out.",
        f"All began at {c.ngpt.config.model.resolve_scale('alpha_attn').init:g}. The paper sees "
        "0.2 to 0.4 in networks of 24 and 36 layers.",
    )
    for chart, caption in zip(others, captions, strict=True):
        yield _card(chart.title, _figure(svg.draw(chart), caption))
    yield "</div>"
    yield _card("What differs from the paper, and why", "\n".join(_departures(c)))
    yield _card("How to repeat it", "\n".join(_provenance(c)))
    yield "</main>\n</body>\n</html>"


def _subtitle(c: Comparison) -> str:
    parameters = format_count(count_parameters(c.ngpt.config.model).total)
    return (
        f'<p class="quiet">Two language models of {parameters} parameters, GPT and the normalized '
        f"Transformer nGPT, each trained on the same {c.gpt.tokens:,} tokens of "
        f"{escape(c.data)} in the same order, seed {c.gpt.config.train.seed}.</p>\n"
        f'<p class="quiet">{escape(caveat(c))}</p>'
    )


def _crossing_note(c: Comparison) -> str:
    if (at := c.crossing) is None:
        return (
            f"GPT ends at {c.gpt.final_loss:.3f} and nGPT at {c.ngpt.final_loss:.3f}: no more "
            f"apart than runs of one model from different seeds, so there is no speed-up to report."
        )
    return (
        f"{at.second.name} ends at {at.second.final_loss:.3f} after {at.second.tokens:,} tokens; "
        f"{at.first.name} is there after {at.tokens:,.0f}, read on the straight line between two "
        f"evaluations. Its learning rate has not come down yet at that point, as "
        f"{at.second.name}'s has at its end."
    )


def _numbers(c: Comparison) -> Iterator[str]:
    yield '<div class="scroll"><table class="numbers">\n<thead><tr><th scope="col"></th>'
    for side in c.sides:
        yield f'<th scope="col" class="{side.arch}-name">{side.name}</th>'
    yield "</tr></thead>\n<tbody>"
    for row in rows(c):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (row.gpt, row.ngpt))
        yield f'<tr><th scope="row">{escape(row.what)}</th>{cells}</tr>'
    yield "</tbody>\n</table></div>"


def _sample(c: Comparison, side: Side) -> str:
    sample = c.samples[side.arch]
    text = f'<pre><span class="prompt">{escape(sample.prompt)}</span>{escape(sample.text)}</pre>'
    return _figure(text, "In grey the prompt: the beginning of the validation text.")


def _departures(c: Comparison) -> Iterator[str]:
    yield '<table class="departures">\n<thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in ("", "here", "paper", "why"))
    yield "</tr></thead>\n<tbody>"
    for d in departures(c):
        cells = (("here: ", d.here), ("paper: ", d.paper), ("", d.why))
        yield f'<tr><th scope="row">{escape(d.what)}</th>'
        yield "".join(f'<td data-label="{label}">{escape(text)}</td>' for label, text in cells)
        yield "</tr>"
    yield "</tbody>\n</table>"


def _provenance(c: Comparison) -> Iterator[str]:
    env = c.ngpt.environment
    machine = env["gpu"] or f"{env['cpu_threads']} CPU threads"
    yield f"<p><code>{escape(shlex.join(env['command']))}</code></p>"
    yield (
        f'<p class="quiet">spherelm {escape(env["spherelm"])}, torch {escape(env["torch"])}, '
        f"Python {escape(env['python'])}, {escape(env['platform'])}, {escape(machine)}; "
        f"{escape(env['started'][:10])}. The folders <code>gpt</code> and <code>ngpt</code> beside "
        f"this page hold the configurations, every step's metrics and the checkpoints.</p>"
    )


def _figure(content: str, caption: str) -> str:
    return f"<figure>\n{content}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def _card(title: str, content: str) -> str:
    return f'<section class="card">\n<h2>{escape(title)}</h2>\n{content}\n</section>'
