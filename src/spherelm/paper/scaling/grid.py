"""Which runs the study is made of, as data: the most informative ones first.

One model carries it: 8 layers, d 512, 8 heads, 65,536 tokens a step. An `Arm` is a way to train it
with its own starting values; a `Point` is one run of an arm. Whatever is not nGPT's alone
(schedules, Muon) is offered to the baselines, too.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spherelm.config import OptimConfig, RunConfig, Schedule, TrainConfig
from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.model.config import ModelConfig, ScaleConfig

TOKENS_PER_STEP = 65_536
VALIDATION_TOKENS = 400_000
"""Of the fixed validation set: as many sequences as fit."""
LAYERS, WIDTH, HEADS, VOCABULARY = 8, 512, 8, 16_384
WARMUP_SHARE = 0.1
"""GPT's linear warmup; nGPT has none."""


@dataclass(frozen=True)
class Arm:
    """A model with its optimizer and starting values."""

    title: str
    lr: float
    """The rate that its points have unless they say otherwise."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the plain model of its architecture, by dotted names."""
    ngpt: bool = False
    compared: bool = True
    """Whether it has factors and curves of its own, beside its losses."""


_QK = {"model.gpt_qk_norm": True}
_MUON = {"optim.algorithm": "muon"}
_FP8 = {"train.precision": "fp8"}
_GATED = {"optim.algorithm": "gated_adamw"}
ARMS: dict[str, Arm] = {
    "gpt": Arm("GPT", 2e-3),
    "gpt-qk": Arm("GPT, QK-norm", 4e-3, _QK),
    "gpt-muon": Arm("GPT, Muon", 2e-3, _MUON),
    "gpt-qk-muon": Arm("GPT, QK-norm, Muon", 4e-3, {**_QK, **_MUON}),
    "ngpt": Arm("nGPT", 8e-3, ngpt=True),
    "ngpt-muon": Arm("nGPT, Muon", 8e-3, _MUON, ngpt=True),
    "ngpt-lgp": Arm(
        "nGPT, logit gradient preconditioning",
        8e-3,
        {"optim.logit_preconditioning": True},
        ngpt=True,
    ),
    "ngpt-gated": Arm("nGPT, GatedAdamW", 8e-3, _GATED, ngpt=True),
    "gpt-gated": Arm("GPT, GatedAdamW", 2e-3, _GATED),
    "ngpt-fp8": Arm("nGPT, fp8", 8e-3, _FP8, ngpt=True, compared=False),
    "gpt-fp8": Arm("GPT, fp8", 2e-3, _FP8, compared=False),
    "ngpt-cap": Arm("nGPT, angle cap 0.05", 8e-3, {"optim.angle_cap": 0.05}, ngpt=True),
}


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
    context: int = 4096
    seed: int = 0

    @property
    def peak(self) -> float:
        return ARMS[self.arm].lr if self.lr is None else self.lr

    @property
    def id(self) -> str:
        """The name of the run's folder: all that distinguishes it."""
        words = [self.arm, f"{self.context // 1024}k", f"{self.millions}m", self.schedule]
        words.append(f"lr{self.peak:g}")
        if self.muon_lr is not None:
            words.append(f"muon{self.muon_lr:g}")
        if self.log_rho is not None:
            words.append(f"rho{self.log_rho:g}")
        return "-".join((*words, f"s{self.seed}"))

    @property
    def steps(self) -> int:
        return round(self.millions * 1e6 / TOKENS_PER_STEP)

    def config(self) -> RunConfig:
        """The whole run, but for the folder of its data."""
        arm, steps = ARMS[self.arm], self.steps
        alpha = ScaleConfig(init=1 / LAYERS) if arm.ngpt else ScaleConfig()
        sequences = TOKENS_PER_STEP // self.context
        run = RunConfig(
            model=ModelConfig(
                arch="ngpt" if arm.ngpt else "gpt",
                vocab_size=VOCABULARY,
                d_model=WIDTH,
                n_layers=LAYERS,
                n_heads=HEADS,
                context=self.context,
                init_std=None if arm.ngpt else 1 / math.sqrt(WIDTH),
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
        return override(run, {**arm.fields, **rho})


def rehearsed(run: RunConfig) -> RunConfig:
    """The same run at a size that a laptop trains in seconds: to see that every step works."""
    small = {"d_model": 32, "n_layers": 2, "n_heads": 2, "context": 64}
    fields = {f"model.{name}": value for name, value in small.items()}
    fields |= {"train.steps": 12, "train.batch_size": 4, "train.micro_batch_size": 4}
    fields |= {"train.eval_every": 4, "train.eval_sequences": 8, "train.compile": False}
    fields |= {"optim.warmup_steps": min(1, run.optim.warmup_steps)}
    return override(run, fields)


def _queue() -> list[Point]:
    """First what each arm, schedule and recipe gives, then curves over tokens, seeds, eight-bit
    products and 1k."""
    both = ("ngpt", "gpt")
    arms = [
        *(Point(arm, 92) for arm in ("ngpt", "gpt", "gpt-qk", "gpt-muon", "ngpt-muon")),
        *(Point(arm, 46) for arm in both),
        *(Point(arm, 46, "log") for arm in both),
        *(Point(arm, 46, "wsd") for arm in both),
        Point("gpt-qk-muon", 92),
        Point("gpt-muon", 92, muon_lr=4e-3),
        *(Point(arm, 46) for arm in ("ngpt-muon", "gpt-qk-muon")),
        *(Point(arm, 46) for arm in ("ngpt-lgp", "ngpt-gated", "ngpt-cap", "gpt-gated")),
        *(Point(arm, 46, "cosine") for arm in both),
    ]
    rates = [
        *(Point("ngpt-muon", 46, muon_lr=lr) for lr in rates_around(8e-3)),
        *(Point("gpt-qk-muon", 46, muon_lr=lr) for lr in rates_around(4e-3)),
        *(Point(arm, 46, lr=lr) for arm in both for lr in rates_around(ARMS[arm].lr)),
        *(Point("gpt-qk", 46, lr=lr) for lr in (2e-3, 4e-3, 8e-3)),
        *(Point("ngpt", 184, lr=lr) for lr in (4e-3, 6e-3)),
        Point("gpt", 184, lr=4e-3),
        *(Point("ngpt", 92, lr=lr) for lr in (4e-3, 6e-3)),
        Point("gpt", 92, lr=4e-3),
    ]
    leaders = (*both, "ngpt-muon", "gpt-qk-muon")
    longer = [Point(arm, tokens) for tokens in (184, 368) for arm in leaders]
    seeds = [
        Point(arm, tokens, seed=seed) for tokens in (92, 184) for seed in (1, 2) for arm in leaders
    ]
    rounded = [Point(f"{arm}-fp8", 92, seed=seed) for seed in range(3) for arm in both]
    short = [Point(arm, tokens, context=1024) for tokens in (46, 92, 184) for arm in both]
    return arms + rates + longer + seeds + rounded + short


def rates_around(lr: float) -> tuple[float, float]:
    """The neighbours of a rate: the optimum must lie inside what was tried."""
    return lr / 2, lr * 2


GRID: tuple[Point, ...] = tuple(_queue())
"""Every run, in the order in which they are made."""


def chosen(pattern: str) -> list[Point]:
    """The points whose id matches a pattern of the shell, such as 'ngpt-4k-92m-*'."""
    found = [point for point in GRID if fnmatch.fnmatchcase(point.id, pattern)]
    if not found:
        raise UserError(f"no run is called {pattern!r}; --list names them all")
    return found
