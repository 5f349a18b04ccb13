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
from spherelm.plots.page import CLOSING, card, figure, opening
from spherelm.training.report.reporter import format_count

STYLE = """
pre .prompt { color: var(--quiet); }
@media (max-width: 760px) {
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
    yield opening(title, STYLE)
    yield f"<header>\n<h1>{escape(verdict(c))}</h1>\n{_subtitle(c)}\n</header>"
    hero, *others = charts_of(c)
    yield card(hero.title, figure(svg.draw(hero), _crossing_note(c)))
    yield card("In numbers", "\n".join(_numbers(c)))
    if c.samples:
        yield '<div class="pair">'
        for side in c.sides:
            yield card(f"{side.name} writes", _sample(c, side))
        yield "</div>"
    yield '<div class="pair">'
    captions = (
        "Steps alone, at the median time of a step on this machine; evaluations and checkpoints "
        "are left out.",
        f"All began at {c.ngpt.config.model.resolve_scale('alpha_attn').init:g}. The paper sees "
        "0.2 to 0.4 in networks of 24 and 36 layers.",
    )
    for chart, caption in zip(others, captions, strict=True):
        yield card(chart.title, figure(svg.draw(chart), caption))
    yield "</div>"
    yield card("What differs from the paper, and why", "\n".join(_departures(c)))
    yield card("How to repeat it", "\n".join(_provenance(c)))
    yield CLOSING


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
    return figure(text, "In grey the prompt: the beginning of the validation text.")


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
