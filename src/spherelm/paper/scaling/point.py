"""One run of the study: an arm (`arms`) at a size, a context and a number of tokens.

Most of the study uses one model: 8 layers, d 512, 8 heads, 65,536 tokens per step; a larger one
checks whether the answer holds.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from spherelm.config import OptimConfig, RunConfig, Schedule, TrainConfig
from spherelm.config_io import override
from spherelm.console import format_context
from spherelm.measured.settings import unit
from spherelm.model.config import ModelConfig, ScaleConfig
from spherelm.paper.ablations import ablate
from spherelm.paper.runner import Job
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.size import Shape

TOKENS_PER_STEP = 65_536
VALIDATION_TOKENS = 400_000
"""Tokens of the fixed validation set, which has as many sequences as fit."""
VOCABULARY = 16_384
WARMUP_SHARE = 0.1
"""GPT's linear warmup; nGPT has none."""


SMALL = "8x512"
CONTEXT = 4096
"""The study's own size and context."""
SHAPES = {
    SMALL: Shape(8, 512, 8),
    "12x768": Shape(12, 768, 12),
    "8x256": Shape(8, 256, 4),
    "8x1024": Shape(8, 1024, 16),
}

TUNED = {
    "init": "model.init_std",
    "warmup": "optim.warmup_steps",
    "decay": "optim.weight_decay",
    "s_z": "model.s_z.init",
    "alpha": "model.alpha_attn.init",
    "beta2": "optim.beta2",
    "momentum": "optim.muon_momentum",
    "final": "optim.final_lr",
    "E_input": "optim.input_lr",
    "E_output": "optim.output_lr",
    "factors": "optim.factor_lr",
}
"""Values that points change one at a time, each in the unit of `measured.settings`: the deviation
in 1/sqrt(d_model), the warmup as a share of the run's steps, the final rate and those of kinds of
parameters as multiples of the highest rate, alpha (both of them) in 1/n_layers."""


@dataclass(frozen=True)
class Point:
    """One run: an arm at a budget of tokens, with a schedule, a rate and a seed."""

    arm: str
    millions: int
    """Millions of tokens; the schedule ends there."""
    schedule: Schedule = "linear"
    lr: float | None = None
    """The highest rate. Unset: the arm's."""
    muon_lr: float | None = None
    """Muon's highest rate. Unset: `lr`."""
    log_rho: float | None = None
    context: int = CONTEXT
    seed: int = 0
    size: str = SMALL
    tuned: tuple[tuple[str, float], ...] = ()
    """Values that replace the arm's own, by their names in `TUNED`."""
    variant: str = ""
    """A row of the paper's ablations (`paper.ablations`), for an nGPT arm; mostly empty."""

    @property
    def peak(self) -> float:
        return ARMS[self.arm].lr if self.lr is None else self.lr

    @property
    def id(self) -> str:
        """The name of the run's folder, containing everything that distinguishes it."""
        size = [] if self.size == SMALL else [self.size]
        words = [self.arm, *size, format_context(self.context), f"{self.millions}m", self.schedule]
        words.append(f"lr{self.peak:g}")
        if self.muon_lr is not None:
            words.append(f"muon{self.muon_lr:g}")
        if self.log_rho is not None:
            words.append(f"rho{self.log_rho:g}")
        words += [f"{name}{value:g}" for name, value in self.tuned]
        variant = [self.variant] if self.variant else []
        return "-".join((*words, f"s{self.seed}", *variant))

    @property
    def steps(self) -> int:
        return round(self.millions * 1e6 / TOKENS_PER_STEP)

    def config(self) -> RunConfig:
        """The whole configuration, except for the data folder."""
        arm, shape, steps = ARMS[self.arm], SHAPES[self.size], self.steps
        alpha = ScaleConfig(init=1 / shape.layers) if arm.ngpt else ScaleConfig()
        sequences = TOKENS_PER_STEP // self.context
        run = RunConfig(
            model=ModelConfig(
                arch="ngpt" if arm.ngpt else "gpt",
                vocab_size=VOCABULARY,
                d_model=shape.width,
                n_layers=shape.layers,
                n_heads=shape.heads,
                context=self.context,
                init_std=None if arm.ngpt else 1 / math.sqrt(shape.width),
                alpha_attn=alpha,
                alpha_mlp=alpha,
                s_z=ScaleConfig(init=10.0) if arm.ngpt else ScaleConfig(),
            ),
            optim=OptimConfig(
                lr=self.peak,
                schedule=self.schedule,
                muon_lr=self.muon_lr,
                warmup_steps=0 if arm.ngpt else round(WARMUP_SHARE * steps),
                weight_decay=0.0 if arm.ngpt else 0.1,
            ),
            train=TrainConfig(
                steps=steps,
                batch_size=sequences,
                micro_batch_size=sequences,
                seed=self.seed,
                compile=True,
                eval_every=100,
                eval_sequences=VALIDATION_TOKENS // self.context,
                log_every=50,
                checkpoint_every=1000,
                keep_last=1,
                tensorboard=False,
            ),
        )
        rho = {} if self.log_rho is None else {"optim.log_rho": self.log_rho}
        run = override(run, {**arm.fields, **rho})
        run = override(run, {k: v for change in self.tuned for k, v in _fields(*change, run)})
        if not self.variant:
            return run
        return dataclasses.replace(run, model=ablate(run.model, self.variant))

    def job(self, rehearse: bool = False) -> Job:
        """The job for `paper.runner`; at a tiny size to rehearse."""
        return Job(self.id, rehearsed(self.config()) if rehearse else self.config())


def _fields(name: str, value: float, run: RunConfig) -> list[tuple[str, float]]:
    """The config fields that a tuned value sets, converted to the units of `run`."""
    dotted = TUNED[name]
    own = value * unit(dotted, run)
    if name == "warmup":
        return [(dotted, round(own))]
    return [(dotted, own), *([("model.alpha_mlp.init", own)] if name == "alpha" else [])]


def rehearsed(run: RunConfig) -> RunConfig:
    """The same run at a size that a laptop trains in seconds, to check that every step works."""
    small = {"d_model": 32, "n_layers": 2, "n_heads": 2, "context": 64}
    fields = {f"model.{name}": value for name, value in small.items()}
    fields |= {"train.steps": 12, "train.batch_size": 4, "train.micro_batch_size": 4}
    fields |= {"train.eval_every": 4, "train.eval_sequences": 8, "train.compile": False}
    fields |= {"optim.warmup_steps": min(1, run.optim.warmup_steps)}
    return override(run, fields)
