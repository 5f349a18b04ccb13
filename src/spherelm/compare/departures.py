"""Which values of a comparison differ from the paper's, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spherelm.compare.pair import Comparison
from spherelm.compare.recorded import is_tuned
from spherelm.config import RunConfig
from spherelm.model.config import PAPER_STD, SCALE_NAMES, Arch, ModelConfig

SHORT_RUN = "A short run ends before the paper's starting value has grown to where it helps: "
WHY_INIT = {
    "s_z": SHORT_RUN + "logits lie within \u00b1s_z, so the loss cannot fall while s_z is near 1.",
    "alpha_attn": SHORT_RUN + 'it means to be "in order of 1/n_layers", of 24 to 36 layers there.',
    "alpha_mlp": "As alpha_attn.",
}
PAPER_WEIGHT_DECAY = 0.1
PAPER_WARMUP: dict[Arch, int] = {"gpt": 2000, "ngpt": 0}
PAPER_BETA2 = 0.95
PAPER_BATCH = 512
PAPER_SIZES = ((24, 1024), (36, 1280))
"""Layers and d_model of its 0.5B and 1B models."""


@dataclass(frozen=True)
class Departure:
    """A value that is not the paper's."""

    what: str
    here: str
    paper: str
    why: str


def departures(c: Comparison) -> list[Departure]:
    """The values of a comparison that the paper has differently, nGPT's first."""
    return [
        *_ngpt(c.ngpt.config.model),
        *_gpt(c.gpt.config),
        *_optimizers(c),
        *_setting(c.gpt.config),
    ]


def _ngpt(model: ModelConfig) -> Iterator[Departure]:
    paper = ModelConfig(d_model=model.d_model, n_heads=model.n_heads)
    for name in SCALE_NAMES:
        here, there = model.resolve_scale(name), paper.resolve_scale(name)
        if here.init != there.init:
            why = WHY_INIT.get(name, "The preset says so.")
            yield Departure(f"nGPT: {name} starts at", f"{here.init:g}", f"{there.init:g}", why)


def _gpt(run: RunConfig) -> Iterator[Departure]:
    if run.model.matrix_std != PAPER_STD:
        yield Departure(
            "GPT: matrices start with deviation",
            f"{run.model.matrix_std:.3g}",
            f"{PAPER_STD:g}",
            f"The paper's is for d_model of 1024 and more; 1/sqrt({run.model.d_model}) is "
            f"{1 / math.sqrt(run.model.d_model):.3g}, and GPT is worse off with less.",
        )
    if run.optim.weight_decay != PAPER_WEIGHT_DECAY:
        yield Departure(
            "GPT: weight decay",
            f"{run.optim.weight_decay:g}",
            f"{PAPER_WEIGHT_DECAY:g}",
            "The preset says so.",
        )


def _optimizers(c: Comparison) -> Iterator[Departure]:
    tuned = all(is_tuned(c.preset, side.config) for side in c.sides)
    yield Departure(
        "learning rate",
        f"GPT {c.gpt.config.optim.lr:g}, nGPT {c.ngpt.config.optim.lr:g}",
        "tuned for each model and length",
        "Each model has the four values that its own sweep of this very setting found "
        "(docs/results/compare.md): shorter runs want higher rates."
        if tuned
        else "As the preset or the command says; no sweep of these runs is recorded.",
    )
    for side in c.sides:
        run = side.config
        if run.optim.warmup_steps != PAPER_WARMUP[side.arch]:
            share = run.optim.warmup_steps / run.train.steps
            yield Departure(
                f"{side.name}: warmup",
                f"{run.optim.warmup_steps} steps, {share:.0%} of the run",
                f"{PAPER_WARMUP[side.arch]} steps",
                "One of the four values." if tuned else "Its share of the preset's run.",
            )
    if c.gpt.config.optim.beta2 != PAPER_BETA2:
        yield Departure(
            "Adam's beta2",
            f"{c.gpt.config.optim.beta2:g}",
            f"{PAPER_BETA2:g}",
            "Batches of a few hundred tokens are noisy: a longer memory helps both models.",
        )


def _setting(run: RunConfig) -> Iterator[Departure]:
    model, train = run.model, run.train
    if (model.n_layers, model.d_model) not in PAPER_SIZES:
        yield Departure(
            "size",
            f"{model.n_layers} layers, d_model {model.d_model}, context {model.context}",
            "24 or 36 layers, d_model 1024 or 1280, context 1k to 8k",
            "To fit the machine and the time at hand.",
        )
    if train.batch_size != PAPER_BATCH:
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
