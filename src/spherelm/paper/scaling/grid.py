"""Which runs the study is made of, as data: the most informative ones first.

One model carries it: 8 layers, d 512, 8 heads, 65,536 tokens a step; a larger one asks whether the
answer holds. A `Point` is one run of an arm (`arms`). Whatever is not nGPT's alone (schedules,
beta2, momentum, the final rate) is offered to the baselines, too, and each arm is tuned by as many
runs as every other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from spherelm.config import OptimConfig, RunConfig, Schedule, TrainConfig
from spherelm.config_io import override
from spherelm.measured.settings import unit
from spherelm.model.config import ModelConfig, ScaleConfig
from spherelm.paper.ablations import TABLES, ablate
from spherelm.paper.named import named
from spherelm.paper.points import BASELINE
from spherelm.paper.scaling.arms import ARMS, BOTH, LEADERS, MAIN
from spherelm.paper.size import Shape

TOKENS_PER_STEP = 65_536
VALIDATION_TOKENS = 400_000
"""Of the fixed validation set: as many sequences as fit."""
VOCABULARY = 16_384
WARMUP_SHARE = 0.1
"""GPT's linear warmup; nGPT has none."""


SMALL = "8x512"
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
}
"""Values that points change one at a time, each in the unit of `measured.settings`: the deviation
in 1/sqrt(d_model), the warmup in steps of the run, the final rate in the highest, alpha (both of
them) in 1/n_layers."""


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
    size: str = SMALL
    tuned: tuple[tuple[str, float], ...] = ()
    """Values other than the arm's own, by their names in `TUNED`."""
    variant: str = ""
    """A row of the paper's ablations (`paper.ablations`), of an arm of nGPT; mostly none."""

    @property
    def peak(self) -> float:
        return ARMS[self.arm].lr if self.lr is None else self.lr

    @property
    def id(self) -> str:
        """The name of the run's folder: all that distinguishes it."""
        size = [] if self.size == SMALL else [self.size]
        words = [self.arm, *size, f"{self.context // 1024}k", f"{self.millions}m", self.schedule]
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
        """The whole run, but for the folder of its data."""
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


def _fields(name: str, value: float, run: RunConfig) -> list[tuple[str, float]]:
    """The fields of a tuned value, as they are in `run`."""
    dotted = TUNED[name]
    own = value * unit(dotted, run)
    if name == "warmup":
        return [(dotted, round(own))]
    return [(dotted, own), *([("model.alpha_mlp.init", own)] if name == "alpha" else [])]


def rehearsed(run: RunConfig) -> RunConfig:
    """The same run at a size that a laptop trains in seconds: to see that every step works."""
    small = {"d_model": 32, "n_layers": 2, "n_heads": 2, "context": 64}
    fields = {f"model.{name}": value for name, value in small.items()}
    fields |= {"train.steps": 12, "train.batch_size": 4, "train.micro_batch_size": 4}
    fields |= {"train.eval_every": 4, "train.eval_sequences": 8, "train.compile": False}
    fields |= {"optim.warmup_steps": min(1, run.optim.warmup_steps)}
    return override(run, fields)


EARLIER = {"ngpt": 8e-3, "gpt": 2e-3}
"""Rates at which schedules and eight bits were compared; GPT's has since been found too low."""
SCHEDULES: tuple[Schedule, ...] = ("linear", "log", "wsd", "cosine")
_GPT_LADDERS = {"init": (0.45, 2.0), "warmup": (0.05, 0.2), "decay": (0.03, 0.3)}
_NGPT_LADDERS = {"s_z": (5.0, 20.0), "alpha": (0.5, 2.0), "warmup": (0.05, 0.1)}
_PAPER = {"ngpt": (("s_z", 1.0), ("alpha", 0.4)), "gpt": (("init", 0.45),)}
"""The paper's own starting values; with 8 layers an alpha of 0.05 is 0.4/8."""


_LONG = {"ngpt": 4e-3, "gpt": 4e-3, "ngpt-muon": 4e-3, "gpt-qk-muon": 8e-3}
"""The best rates at 184M tokens so far."""
_AROUND = {
    "ngpt-muon": (5.66e-3, 2e-3),
    "gpt-qk-muon": (5.66e-3, 16e-3),
    "ngpt": (5.66e-3, 2e-3),
    "gpt": (5.66e-3, 8e-3),
}
"""At 184M tokens, beside an arm's own rate and half of it: others near the better one."""
_TOGETHER = {
    "ngpt-muon": (("momentum", 0.9), ("warmup", 0.05)),
    "gpt-qk-muon": (("momentum", 0.9), ("init", 0.45)),
    "ngpt": (("beta2", 0.99), ("warmup", 0.05)),
    "gpt": (("beta2", 0.99), ("init", 0.45)),
}
"""Two values at once, of each arm."""


def ladders(arm: str) -> Mapping[str, tuple[float, float]]:
    """The neighbours of an arm's own values, as many for each arm. A deviation of 0.45/sqrt(512) is
    the paper's 0.02."""
    muon = ARMS[arm].fields.get("optim.algorithm") == "muon"
    optimizer = {"momentum": (0.9, 0.98)} if muon else {"beta2": (0.9, 0.99)}
    return (_NGPT_LADDERS if ARMS[arm].ngpt else _GPT_LADDERS) | optimizer


def _queue() -> list[Point]:
    """What each arm and schedule gives; rates; tuned values; then curves over tokens, seeds, other
    contexts, recipes, the paper's ablations, eight-bit products, and the larger model."""
    arms = [
        *(Point(arm, 92) for arm in MAIN),
        *(Point(arm, 46, schedule, lr=lr) for schedule in SCHEDULES for arm, lr in EARLIER.items()),
    ]
    rates = [
        *(Point(arm, 92, lr=lr) for arm in LEADERS for lr in rates_around(ARMS[arm].lr)),
        *(Point(arm, 92, lr=ARMS[arm].lr / 4) for arm in BOTH),
        *(Point(arm, 92, muon_lr=4e-3) for arm in LEADERS[2:]),
        *(Point(arm, 184, lr=lr * ARMS[arm].lr) for lr in (1, 1 / 2) for arm in LEADERS),
        *(Point(arm, 184, lr=lr) for arm, around in _AROUND.items() for lr in around),
        *(Point(arm, 46, lr=lr * ARMS[arm].lr) for lr in (1, 1 / 2, 2) for arm in LEADERS),
        *(Point(arm, 46, lr=lr, muon_lr=8e-3) for lr in (2e-3, 4e-3, 16e-3) for arm in LEADERS[2:]),
        *(Point("gpt-qk", 92, lr=lr) for lr in (2e-3, 8e-3)),
        *(Point("gpt-muon", 92, lr=lr) for lr in (4e-3, 8e-3)),
    ]
    tuned = [
        *(
            Point(arm, 46, tuned=((name, value),))
            for arm in LEADERS
            for name, values in ladders(arm).items()
            for value in values
        ),
        *(Point(arm, 92, tuned=paper) for arm, paper in _PAPER.items()),
    ]
    # What helped most at 46M tokens, GPT's best baseline above all.
    quick = (("momentum", 0.9),)
    carried = [
        *(Point(arm, 46, tuned=values) for arm, values in _TOGETHER.items()),
        *(Point(arm, 92, tuned=quick) for arm in LEADERS[2:]),
        *(Point(arm, m, lr=_LONG[arm], tuned=quick) for m in (184, 368) for arm in LEADERS[2:]),
    ]
    # A high rate that falls early: what a longer run may want where rows do not grow.
    early = [Point(arm, 184, "log", log_rho=rho) for rho in (0.3, 1.0) for arm in LEADERS]
    longest = [Point(arm, 368, lr=part * _LONG[arm]) for part in (1, 1 / 2, 2) for arm in LEADERS]
    seeds = [
        *(Point(arm, 92, seed=seed) for seed in (1, 2) for arm in LEADERS),
        *(Point("gpt", 92, lr=EARLIER["gpt"], seed=seed) for seed in (1, 2)),
        *(Point(arm, 184, lr=_LONG[arm], seed=seed) for seed in (1, 2) for arm in LEADERS),
    ]
    contexts = [
        *(Point(arm, tokens, context=1024) for tokens in (46, 92, 184) for arm in BOTH),
        *(Point(arm, 92, context=8192) for arm in LEADERS),
    ]
    recipes = [
        *(Point(name, 46) for name, arm in ARMS.items() if arm.base and arm.compared),
        *(Point(arm, 46, tuned=(("final", 0.1),)) for arm in LEADERS),
    ]
    # nuGPT's claim: the best rate of one width is that of others.
    widths = [
        Point(arm, 46, lr=lr, size=size)
        for size in ("8x256", "8x1024")
        for arm in ("ngpt", "ngpt-nugpt")
        for lr in (8e-3, *rates_around(8e-3))
    ]
    ablated = [
        Point("ngpt", 92, variant=row.name)
        for table in TABLES.values()
        for row in table
        if row.name != BASELINE
    ]
    rounded = [
        Point(f"{arm}-fp8", 92, lr=lr, seed=seed)
        for seed in range(3)
        for arm, lr in EARLIER.items()
    ]
    larger = [Point(arm, tokens, size="12x768") for tokens in (92, 184) for arm in LEADERS]
    first = arms + rates + tuned + carried + early + longest + seeds + contexts + recipes
    # A run may be asked for twice: as an arm's own, and as a neighbour of another rate.
    return list(dict.fromkeys(first + ablated + rounded + larger + widths))


def rates_around(lr: float) -> tuple[float, float]:
    """The neighbours of a rate: the optimum must lie inside what was tried."""
    return lr / 2, lr * 2


GRID: tuple[Point, ...] = tuple(_queue())
"""Every run, in the order in which they are made."""


def chosen(patterns: str) -> list[Point]:
    """The points that `--only` names."""
    return named(GRID, patterns, lambda point: point.id, "--list")
