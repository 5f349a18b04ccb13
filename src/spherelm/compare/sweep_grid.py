"""The grid of settings for a sweep, and the run of each setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.model.config import Arch
from spherelm.ops.device import choose_device

Setting = tuple[tuple[str, float], ...]
"""Names of a grid and their values, such as (("lr", 0.002), ("warmup", 0.1))."""
Grid = Mapping[str, Sequence[float]]

RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
WARMUPS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
GRIDS: dict[Arch, Grid] = {
    "gpt": {
        "lr": RATES,
        "warmup": WARMUPS,
        "init": (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8),
        "decay": (0.0, 0.03, 0.1, 0.3, 1.0, 3.0),
    },
    "ngpt": {
        "lr": RATES,
        "warmup": WARMUPS,
        "s_z": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
        "alpha": (0.05, 0.1, 0.2, 0.4, 0.8),
    },
}
"""The ladder of each value. `warmup` is a share of the steps, `init` the standard deviation of
GPT's matrices times sqrt(d_model); `s_z` and `alpha` are starting values."""
MUON: Grid = {"momentum": (0.6, 0.7, 0.8, 0.9, 0.95, 0.98), "muon": (0.5, 1.0, 2.0, 4.0)}
"""Two more for a model that is trained with Muon; `muon` is Muon's rate over `lr`."""


def grids_of(preset: str) -> dict[Arch, Grid]:
    """The ladders of both models of a preset."""
    muon = presets.of_size(preset, "gpt").optim.algorithm == "muon"
    return {arch: {**grid, **(MUON if muon else {})} for arch, grid in GRIDS.items()}


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    arch: Arch
    setting: Setting
    seed: int


@dataclass(frozen=True)
class Seeds:
    """Seeds count from 0: the first ones choose the settings, the next ones run the winners."""

    choosing: int
    rerunning: int

    @property
    def chosen_by(self) -> range:
        return range(self.choosing)

    @property
    def fresh(self) -> range:
        return range(self.choosing, self.choosing + self.rerunning)


@dataclass(frozen=True)
class Plan:
    """What all runs of a sweep share."""

    preset: str
    data: str | None
    device: str
    steps: int
    cores: int
    """Threads of each run."""


def configure(plan: Plan, trial: Trial) -> RunConfig:
    """The configuration of a trial: the preset with the trial's values, evaluated at the end."""
    base = presets.of_size(plan.preset, trial.arch)
    changes: dict[str, object] = {
        "train.steps": plan.steps,
        "train.seed": trial.seed,
        "train.device": plan.device,
        "train.precision": "fp32",
        "train.deterministic": choose_device(plan.device).type == "cuda",  # switches TF32 off
        "train.eval_every": 0,
        "train.checkpoint_every": 0,
        "train.tensorboard": False,
        "data.path": plan.data,
    }
    lr = dict(trial.setting).get("lr", base.optim.lr)
    for name, value in trial.setting:
        changes |= _fields(name, value, base, plan.steps, lr)
    return override(base, changes)


def _fields(name: str, value: float, base: RunConfig, steps: int, lr: float) -> dict[str, object]:
    """The fields of a run that a value of the grid sets, beside a rate of `lr`."""
    fields: dict[str, dict[str, object]] = {
        "lr": {"optim.lr": value},
        "momentum": {"optim.muon_momentum": value},
        "muon": {"optim.muon_lr": None if value == 1 else value * lr},
        "warmup": {"optim.warmup_steps": round(value * steps)},
        "init": {"model.init_std": value / math.sqrt(base.model.d_model)},
        "decay": {"optim.weight_decay": value},
        "s_z": {"model.s_z.init": value},
        "alpha": {"model.alpha_attn.init": value, "model.alpha_mlp.init": value},
    }
    return fields[name]


def setting_of(run: RunConfig, grid: Grid) -> Setting:
    """A configuration's setting: for each name the nearest value on the grid."""
    model = run.model
    values = {
        "lr": run.optim.lr,
        "momentum": run.optim.muon_momentum,
        "muon": 1 if run.optim.muon_lr is None else run.optim.muon_lr / run.optim.lr,
        "warmup": run.optim.warmup_steps / run.train.steps,
        "init": model.matrix_std * math.sqrt(model.d_model),
        "decay": run.optim.weight_decay,
        "s_z": model.resolve_scale("s_z").init,
        "alpha": model.resolve_scale("alpha_attn").init,
    }
    return tuple(
        (name, min(ladder, key=lambda rung: abs(rung - values[name])))
        for name, ladder in grid.items()
    )


def neighbours(setting: Setting, grid: Grid) -> list[Setting]:
    """All settings one step up or down in one value."""
    found = (moved(setting, name, step, grid) for name, _ in setting for step in (-1, 1))
    return [there for there in found if there is not None]


def moved(setting: Setting, name: str, step: int, grid: Grid) -> Setting | None:
    """The setting with one value moved by `step` rungs; None beyond the end of its ladder."""
    rung = grid[name].index(dict(setting)[name]) + step
    if not 0 <= rung < len(grid[name]):
        return None
    return tuple((n, grid[name][rung] if n == name else v) for n, v in setting)


def describe(setting: Setting) -> str:
    """lr=0.002 warmup=0.1"""
    return " ".join(f"{name}={value:g}" for name, value in setting)
