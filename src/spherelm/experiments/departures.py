"""Which values of a comparison differ from the paper's, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spherelm.config import RunConfig
from spherelm.experiments.compare import Comparison
from spherelm.model.config import SCALE_NAMES, ModelConfig

SHORT_RUN = "A short run ends before the paper's starting value has grown to where it helps: "
WHY_INIT = {
    "s_z": SHORT_RUN + "logits lie within \u00b1s_z, so the loss cannot fall while s_z is near 1.",
    "alpha_attn": SHORT_RUN + 'it means to be "in order of 1/n_layers", of 24 to 36 layers there.',
    "alpha_mlp": "As alpha_attn.",
}
PAPER_WEIGHT_DECAY = 0.1
PAPER_WARMUP = 2000
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
    return [*_ngpt(c.ngpt.config.model), *_rates(c), *_gpt(c.gpt.config), *_setting(c.gpt.config)]


def _ngpt(model: ModelConfig) -> Iterator[Departure]:
    paper = ModelConfig(d_model=model.d_model, n_heads=model.n_heads)
    for name in SCALE_NAMES:
        here, there = model.resolve_scale(name), paper.resolve_scale(name)
        if here.init != there.init:
            why = WHY_INIT.get(name, "The preset says so.")
            yield Departure(f"nGPT: {name} starts at", f"{here.init:g}", f"{there.init:g}", why)


def _rates(c: Comparison) -> Iterator[Departure]:
    yield Departure(
        "learning rate",
        f"GPT {c.gpt.config.optim.lr:g}, nGPT {c.ngpt.config.optim.lr:g}",
        "tuned for each model and length",
        "Tuned here as well, each model by its own sweep (docs/results/compare.md): shorter runs "
        "want higher rates.",
    )


def _gpt(run: RunConfig) -> Iterator[Departure]:
    optim = run.optim
    if optim.weight_decay != PAPER_WEIGHT_DECAY:
        yield Departure(
            "GPT: weight decay",
            f"{optim.weight_decay:g}",
            f"{PAPER_WEIGHT_DECAY:g}",
            "GPT is better off with this in the sweep.",
        )
    if optim.warmup_steps != PAPER_WARMUP:
        share = optim.warmup_steps / run.train.steps
        yield Departure(
            "GPT: warmup",
            f"{optim.warmup_steps} steps, {share:.0%} of the run",
            f"{PAPER_WARMUP} steps",
            "The paper's warmup is longer than a short run; the share is from the sweep.",
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
