"""The paper's three ablation tables: every row as a change of a config, with its numbers.

All rows of the paper are the 0.5B nGPT at 1k, learning rate 1e-3, 100k steps (52B tokens): the
preset `ngpt-0.5b-1k`. A row changes only what it ablates, so it applies to any nGPT; values that
the paper ties to d_model follow that of the base config.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from spherelm.errors import UserError, nearest
from spherelm.model.config import ModelConfig

Table = Literal["init", "scalar", "norm"]
COLUMNS = {
    "s_qk": ("s_qk",),
    "s_u": ("s_u", "s_nu"),
    "s_z": ("s_z",),
    "alpha": ("alpha_attn", "alpha_mlp"),
}
"""The tables' columns: s_u and s_ν change together, and so do α_A and α_M."""
BASELINE_LOSS = 2.252
"""Validation loss of the paper's unchanged nGPT; other rows report a change from it in %."""


@dataclass(frozen=True)
class Reported:
    """What the paper prints in a row."""

    accuracy: float
    """Average accuracy on its five downstream tasks, in %."""
    loss_percent: float
    """Change of the final validation loss from `BASELINE_LOSS`, in %."""
    means: dict[str, tuple[float, ...]]
    """Means of the learned factors, by column; s_u and s_ν share one, as do α_A and α_M."""
    step_seconds: float | None = None
    """Training time per step, if the table has it."""

    @property
    def loss(self) -> float:
        """Final validation loss."""
        return BASELINE_LOSS * (1 + self.loss_percent / 100)


@dataclass(frozen=True)
class Ablation:
    """One row: its name, what the paper reports for it, and what it changes."""

    name: str
    reported: Reported
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the model config to replace."""
    factors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By column, fields of its factors to replace; a function computes the value from d_model."""


def ablate(base: ModelConfig, name: str) -> ModelConfig:
    """The config of the row called `name`: `base`, an nGPT, with the row's changes."""
    if base.arch != "ngpt":
        raise UserError(
            f"the paper's ablations are of nGPT; model.arch must be 'ngpt', not {base.arch!r}"
        )
    rows = {row.name: row for table in TABLES.values() for row in table}
    if name not in rows:
        raise UserError(f"unknown ablation {name!r}; {nearest(name, rows)}")
    changes = dict(rows[name].fields)
    for column, values in rows[name].factors.items():
        now = {key: v(base.d_model) if callable(v) else v for key, v in values.items()}
        changes |= {n: dataclasses.replace(getattr(base, n), **now) for n in COLUMNS[column]}
    return dataclasses.replace(base, **changes)


def names(table: Table) -> list[str]:
    """The names of a table's rows, in the paper's order; `baseline` is the first in each."""
    return [row.name for row in TABLES[table]]


_Value = float | Callable[[int], float]
"""A number, or a function of d_model."""


def _root(d_model: int) -> float:
    return math.sqrt(d_model)


def _inverse_root(d_model: int) -> float:
    return 1 / math.sqrt(d_model)


def _init_row(
    column: str,
    label: str,
    mean: tuple[float, ...],
    accuracy: float,
    loss_percent: float,
    *,
    init: _Value,
    scale: _Value,
) -> Ablation:
    reported = Reported(accuracy, loss_percent, {column: mean})
    factors = {column: {"init": init, "scale": scale}}
    return Ablation(f"{column}-{label}", reported, factors=factors)


_INIT = (
    Ablation(
        "baseline", Reported(54.44, 0.0, {"s_qk": (1.51,), "s_u": (1.24, 1.12), "s_z": (60.8,)})
    ),
    _init_row("s_qk", "init-0.33", (1.36,), 54.67, -0.33, init=0.33, scale=_inverse_root),
    _init_row("s_qk", "init-0.05", (1.01,), 53.69, -0.09, init=0.05, scale=_inverse_root),
    _init_row("s_qk", "scale-1", (1.38,), 54.19, -0.09, init=1.0, scale=1.0),
    _init_row("s_qk", "init-0.33-scale-1", (1.11,), 54.89, -0.08, init=0.33, scale=1.0),
    _init_row("s_qk", "init-0.05-scale-1", (0.29,), 52.41, 1.94, init=0.05, scale=1.0),
    _init_row("s_u", "init-small", (0.03, 0.03), 53.51, 0.92, init=_inverse_root, scale=1.0),
    _init_row("s_u", "scale-small", (2.75, 11.2), 53.90, 0.05, init=1.0, scale=_inverse_root),
    _init_row(
        "s_u", "both-small", (0.40, 0.25), 54.39, 0.48, init=_inverse_root, scale=_inverse_root
    ),
    _init_row("s_z", "init-large", (106.1,), 52.60, 1.06, init=_root, scale=_inverse_root),
    _init_row("s_z", "scale-1", (23.6,), 52.71, 3.12, init=1.0, scale=1.0),
    _init_row("s_z", "init-large-scale-1", (63.6,), 51.84, 1.66, init=_root, scale=1.0),
)
"""Table 'Ablations of s_init and s_scale'; small is 1/sqrt(d_model), large is sqrt(d_model). The
unchanged model heads each of its three sections but is listed only once here."""


def _mode_row(
    s_qk: float,
    s_u: tuple[float, ...],
    s_z: float,
    alpha: tuple[float, float],
    accuracy: float,
    loss_percent: float,
    *,
    scalar: tuple[str, ...] = (),
    fixed: tuple[str, ...] = (),
) -> Ablation:
    """A row with changed modes.

    The paper prints one number for scalar s_u and s_ν together. We have one each, but the model is
    the same: Norm cancels a scalar on u in the MLP's output, so only the one on ν has an effect.
    """
    modes = dict.fromkeys(fixed, "fixed") | dict.fromkeys(scalar, "scalar")
    name = "-".join(f"{column}-{mode}" for column, mode in modes.items()) or "baseline"
    means = {"s_qk": (s_qk,), "s_u": s_u, "s_z": (s_z,), "alpha": alpha}
    factors = {column: {"mode": mode} for column, mode in modes.items()}
    return Ablation(name, Reported(accuracy, loss_percent, means), factors=factors)


_SCALAR = (
    _mode_row(1.47, (1.12, 1.24), 60.80, (0.22, 0.33), 54.44, 0.0),
    _mode_row(1.49, (1.13, 1.23), 62.11, (0.22, 0.33), 54.05, 0.22, scalar=("s_qk",)),
    _mode_row(1.46, (1.46,), 60.70, (0.22, 0.33), 54.23, 0.07, scalar=("s_u",)),
    _mode_row(1.47, (1.12, 1.24), 95.65, (0.22, 0.33), 53.69, 0.20, scalar=("s_z",)),
    _mode_row(1.40, (1.13, 1.13), 60.90, (0.30, 0.36), 54.86, 0.22, scalar=("alpha",)),
    _mode_row(1.51, (1.47,), 61.18, (0.22, 0.32), 54.52, 0.17, scalar=("s_qk", "s_u")),
    _mode_row(1.52, (1.68,), 96.65, (0.22, 0.30), 52.59, 0.30, scalar=("s_qk", "s_u", "s_z")),
    _mode_row(1.49, (1.17,), 88.64, (0.30, 0.37), 53.61, 0.62, scalar=tuple(COLUMNS)),
    _mode_row(1.00, (1.12, 1.15), 60.69, (0.24, 0.35), 54.17, 0.11, fixed=("s_qk",)),
    _mode_row(1.45, (1.00,), 61.53, (0.23, 0.35), 55.51, 0.05, fixed=("s_u",)),
    _mode_row(1.00, (1.00,), 61.26, (0.24, 0.36), 53.63, 0.20, fixed=("s_qk", "s_u")),
    _mode_row(
        1.00, (1.00,), 96.15, (0.22, 0.35), 53.37, 0.40, fixed=("s_qk", "s_u"), scalar=("s_z",)
    ),
)
"""Table 'Ablations of replacing learnable per-element vector ... with a single learned scalar or a
fixed value'."""

_NORM = (
    Ablation("baseline", Reported(54.44, 0.0, {}, step_seconds=0.657)),
    Ablation("no-qk-norm", Reported(54.71, 0.12, {}, step_seconds=0.576), {"qk_norm": False}),
    Ablation("slerp", Reported(54.80, -0.08, {}, step_seconds=0.726), {"update": "slerp"}),
)
"""Table 'Ablations of the design choices of nGPT'."""

TABLES: dict[Table, tuple[Ablation, ...]] = {"init": _INIT, "scalar": _SCALAR, "norm": _NORM}
"""The paper's three tables of ablations, row by row."""
