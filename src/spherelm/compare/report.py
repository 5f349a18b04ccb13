"""`report.html`: a comparison on one self-contained page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from html import escape

from spherelm.compare.charts import charts_of
from spherelm.compare.comparison import Comparison, Side
from spherelm.compare.departures import departures
from spherelm.compare.table import caveat, rows, verdict
from spherelm.config import RunConfig
from spherelm.console import counted, format_count
from spherelm.model.flops import count_parameters
from spherelm.plots import svg
from spherelm.plots.page import Named, Part, document, figure, sample, table

PAPERS_GPT = (
    "This GPT is the paper's, trained with AdamW like nGPT. QK-norm, Muon and tied embeddings make "
    "a better GPT (spherelm compare --preset nano-muon), and against that one our study finds no "
    "saving of tokens that we can be sure of (docs/results/headline.md)."
)
STRONGEST_GPT = (
    "This GPT is the strongest that we know, with QK-norm, Muon and tied embeddings; nGPT has "
    "Muon, too. In our study of larger models and longer runs, nGPT saves none of such a GPT's "
    "tokens that we can be sure of (docs/results/headline.md)."
)
"""What to know before taking the result of a comparison for a result about nGPT in general."""


def render(comparison: Comparison, inside: str | None = None) -> str:
    """The page as HTML; `inside` is the address of the page of both models' insides."""
    c = comparison
    title = f"GPT and nGPT on the same tokens: {c.preset}"
    return document(title, verdict(c), _subtitle(c), _parts(c, inside))


def _parts(c: Comparison, inside: str | None) -> Iterator[Part | Sequence[Part]]:
    hero, seconds, alpha = charts_of(c)
    yield Part("loss", hero.title, figure(svg.draw(hero), _crossing_note(c) + hero.cut), "Loss")
    numbers = table(
        ["", *(Named(side.name, side.arch) for side in c.sides)],
        [(row.what, row.gpt, row.ngpt) for row in rows(c)],
        "numbers",
    )
    yield Part("numbers", "In numbers", numbers)
    if c.samples:
        yield [
            Part(f"sample-{side.arch}", f"{side.name} writes", _sample(c, side)) for side in c.sides
        ]
    time = (
        "Steps alone, at the median time of a step on this machine; evaluations and checkpoints "
        f"are left out.{seconds.cut}"
    )
    began = (
        f"All began at {c.ngpt.config.model.resolve_scale('alpha_attn').init:g}. The paper sees "
        "0.2 to 0.4 in networks of 24 and 36 layers."
    )
    yield [
        Part("time", seconds.title, figure(svg.draw(seconds), time), "Time"),
        Part("rates", alpha.title, figure(svg.draw(alpha), began), "Eigen learning rates"),
    ]
    if inside is not None:
        yield Part("inside", "What they look like inside", _inside(inside), "Look inside")
    yield Part("departures", "What differs from the paper, and why", _departures(c), "Departures")
    yield Part("repeat", "How to repeat it", "\n".join(_provenance(c)))


def _inside(address: str) -> str:
    return (
        f'<p><a href="{escape(address)}">Look inside both models</a>: their embeddings, condition '
        "numbers and learned factors as in the paper's figures, the path of every token of a text "
        "through their layers, where each logit comes from, and what their neurons are about.</p>"
    )


def _subtitle(c: Comparison) -> str:
    sizes = [format_count(count_parameters(m.config.model).total) for m in (c.gpt, c.ngpt)]
    parameters = " and ".join(dict.fromkeys(sizes))  # they differ visibly only for small models
    return (
        f'<p class="quiet">Two language models of {parameters} parameters, GPT and the normalized '
        f"Transformer nGPT, each trained on the same {c.gpt.tokens:,} tokens "
        f"from {escape(c.data)} in the same order, seed {c.gpt.config.train.seed}.</p>\n"
        f'<p class="quiet">{escape(caveat(c))}</p>\n'
        f'<p class="quiet">{escape(_baseline(c.gpt.config))}</p>'
    )


def _baseline(gpt: RunConfig) -> str:
    strongest = gpt.model.gpt_qk_norm and gpt.optim.algorithm == "muon" and gpt.model.tie_embeddings
    return STRONGEST_GPT if strongest else PAPERS_GPT


def _crossing_note(c: Comparison) -> str:
    if (at := c.crossing) is None:
        return (
            f"GPT ends at {c.gpt.final_loss:.3f} and nGPT at {c.ngpt.final_loss:.3f}: no more "
            f"apart than runs of one model from different seeds, so there is no speed-up to report."
        )
    if not at.is_sooner:
        return (
            f"{at.first.name} ends at {at.first.final_loss:.3f} and {at.second.name} at "
            f"{at.second.final_loss:.3f}, after the same tokens; no evaluation before the end "
            f"finds {at.first.name} at that loss, so there is no speed-up to report."
        )
    return (
        f"{at.second.name} ends at {at.second.final_loss:.3f} after {at.second.tokens:,} tokens; "
        f"{at.first.name} is there after {at.tokens:,.0f}, read on the straight line between two "
        f"evaluations. At that point its learning rate has not come down yet, unlike "
        f"{at.second.name}'s at the end of its run."
    )


def _sample(c: Comparison, side: Side) -> str:
    written = c.samples[side.arch]
    grey = "In grey the prompt: the beginning of the validation text."
    return figure(sample(written.prompt, written.text), grey)


def _departures(c: Comparison) -> str:
    found = [(d.what, d.here, d.paper, d.why) for d in departures(c)]
    return table(["", "here", "paper", "why"], found, stacked=True)


def _provenance(c: Comparison) -> Iterator[str]:
    env = c.ngpt.environment
    machine = env["gpu"] or counted(env["cpu_threads"], "CPU thread")
    yield f"<p><code>{escape(shlex.join(env['command']))}</code></p>"
    yield (
        f'<p class="quiet">spherelm {escape(env["spherelm"])}, torch {escape(env["torch"])}, '
        f"Python {escape(env['python'])}, {escape(env['platform'])}, {escape(machine)}; "
        f"{escape(env['started'][:10])}. The folders <code>gpt</code> and <code>ngpt</code> beside "
        f"this page hold the configurations, every step's metrics and the checkpoints.</p>"
    )
