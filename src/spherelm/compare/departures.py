"""Which values of a comparison differ from the paper's, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spherelm.compare.comparison import Comparison
from spherelm.compare.recorded import is_tuned
from spherelm.config import OptimConfig, RunConfig
from spherelm.model.config import PAPER_STD, SCALE_NAMES, Arch, ModelConfig

SHORT_RUN = "A short run ends before the paper's starting value has grown to where it helps: "
WHY_INIT = {
    "s_z": SHORT_RUN + "logits lie within \u00b1s_z, so the loss cannot fall while s_z is near 1.",
    "alpha_attn": SHORT_RUN + 'it is meant as "in order of 1/n_layers", for 24 to 36 layers.',
    "alpha_mlp": "As alpha_attn.",
}
PAPER_WEIGHT_DECAY = 0.1
PAPER_WARMUP: dict[Arch, int] = {"gpt": 2000, "ngpt": 0}
USUAL_BETA2 = 0.95
"""For language models; the paper states none."""
PAPER_STEPS, PAPER_BATCH = 100_000, 512
"""The fewest steps of its runs, and sequences per step."""
PAPER_SIZES = ((24, 1024), (36, 1280))
"""Layers and d_model of its 0.5B and 1B models."""


@dataclass(frozen=True)
class Departure:
    """A value that differs from the paper's."""

    what: str
    here: str
    paper: str
    why: str


Found = Iterator[Departure]


def departures(c: Comparison) -> list[Departure]:
    """The values of a comparison that differ from the paper's, nGPT's first."""
    return [*_starts(c), *_baseline(c.gpt.config), *_optimizers(c), *_setting(c.gpt.config)]


def _number(what: str, here: float, paper: float, why: str = "The preset says so.") -> Found:
    if here != paper:
        yield Departure(what, f"{here:.3g}", f"{paper:g}", why)


def _starts(c: Comparison) -> Found:
    gpt, ngpt = c.gpt.config.model, c.ngpt.config.model
    paper = ModelConfig(d_model=ngpt.d_model, n_heads=ngpt.n_heads)
    for name in SCALE_NAMES:
        init, why = ngpt.resolve_scale(name).init, WHY_INIT.get(name, "The preset says so.")
        yield from _number(f"nGPT: {name} starts at", init, paper.resolve_scale(name).init, why)
    why = (
        f"The paper's is for d_model of 1024, where it is 0.64/sqrt(d_model); here it is "
        f"{gpt.matrix_std * math.sqrt(gpt.d_model):.2g}/sqrt({gpt.d_model}). A GPT as narrow as "
        f"this trains worse with {PAPER_STD:g}."
    )
    yield from _number("GPT: matrices start with deviation", gpt.matrix_std, PAPER_STD, why)


def _baseline(gpt: RunConfig) -> Found:
    better = "It makes a better GPT (docs/results/headline.md)."
    if gpt.model.gpt_qk_norm:
        yield Departure("GPT: QK-norm", "yes", "no", better)
    if gpt.model.tie_embeddings:
        yield Departure("GPT: tied embeddings", "yes", "no", f"{better} nGPT is no better with it.")


def _optimizers(c: Comparison) -> Found:
    gpt, ngpt = c.gpt.config.optim, c.ngpt.config.optim
    yield from _number("GPT: weight decay", gpt.weight_decay, PAPER_WEIGHT_DECAY)
    if gpt.algorithm == "muon":
        blocks = "Muon for the matrices of the blocks, AdamW for the rest"
        yield Departure("optimizer", blocks, "AdamW", "Both models end lower with it.")
    if gpt.schedule != "cosine":
        decay = "as a cosine, to zero"
        yield Departure("decay of the rate", gpt.schedule, decay, "It suits both models as well.")
    tuned = all(is_tuned(c.preset, side.config) for side in c.sides)
    yield Departure(
        "learning rate",
        f"GPT {_rates(gpt)}, nGPT {_rates(ngpt)}",
        "tuned for each model and length",
        "Each model has the values that its own sweep of this very setting found "
        "(docs/results/compare.md): shorter runs want higher rates."
        if tuned
        else "As the preset or the command says; no sweep of these runs is recorded.",
    )
    for side in c.sides:
        steps, paper = side.config.optim.warmup_steps, PAPER_WARMUP[side.arch]
        if steps != paper:
            yield Departure(
                f"{side.name}: warmup",
                f"{steps} steps, {steps / side.config.train.steps:.0%} of the run",
                f"{paper} steps",
                "One of the values swept." if tuned else "Its share of the preset's run.",
            )
    if gpt.beta2 != USUAL_BETA2:
        yield Departure(
            "Adam's beta2",
            f"{gpt.beta2:g}",
            f"not stated; {USUAL_BETA2:g} is usual",
            "Batches of a few hundred tokens are noisy: a longer memory helps both models.",
        )


def _rates(optim: OptimConfig) -> str:
    """4e-3 (8e-3 for Muon)"""
    return f"{optim.lr:g}" + ("" if optim.muon_lr is None else f" ({optim.muon_lr:g} for Muon)")


def _setting(run: RunConfig) -> Found:
    model, train = run.model, run.train
    if (model.n_layers, model.d_model) not in PAPER_SIZES:
        yield Departure(
            "size",
            f"{model.n_layers} layers, d_model {model.d_model}, context {model.context}",
            "24 or 36 layers, d_model 1024 or 1280, context 1k to 8k",
            "To fit the machine and the time at hand.",
        )
    if train.batch_size != PAPER_BATCH or train.steps < PAPER_STEPS:
        yield Departure(
            "budget",
            f"{train.steps} steps of {train.batch_size} sequences",
            f"100k steps and more of {PAPER_BATCH} sequences",
            "The same. The paper's speed-up grows with the length of training.",
        )
    if train.weight_storage == "fp32":
        yield Departure(
            "matrices are stored in",
            "float32",
            "bfloat16",
            "Storing them in bfloat16 is known to hurt GPT, and so to flatter nGPT.",
        )
