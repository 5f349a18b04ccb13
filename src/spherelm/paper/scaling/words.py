"""How tables describe runs: by the arm, and by whatever else distinguishes a run."""

from __future__ import annotations

import functools
from typing import Any

from spherelm.config import RunConfig
from spherelm.measured.settings import recipe_of
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.identity import Place, arm_of, variant_of
from spherelm.paper.scaling.point import TUNED, Point
from spherelm.paper.store import Record

RUN = ("model", "context", "tokens", "arm", "schedule", "rate", "seed")
"""The columns of `cells`."""
SETTING = RUN[:-1]
LEAD = ("model", "context", "tokens", "arm", "rate")
"""The columns of `setting` and `lead`."""


def cells(record: Record) -> list[str]:
    """The first cells of a run's row."""
    run = record.config
    return [
        *Place.of(run).cells,
        millions(record.tokens),
        title(record),
        _schedule(run),
        _rate(run),
        str(record.seed),
    ]


def setting(record: Record) -> list[str]:
    """The cells of a run's setting, without the seed."""
    return cells(record)[:-1]


def lead(record: Record) -> list[str]:
    """Fewer cells, for tables of the best runs only."""
    shown = dict(zip(RUN, cells(record), strict=True))
    return [shown[name] for name in LEAD]


def title(record: Record) -> str:
    """The arm, and the values that replace the arm's own in this run."""
    if variant := variant_of(record.id):
        return f"nGPT, {variant}"
    run, arm = record.config, arm_of(record.config)
    usual, own = _usual(arm), dict(recipe_of(run))
    changed = [name for name, field in TUNED.items() if own.get(field) != usual.get(field)]
    return ", ".join((ARMS[arm].title, *(f"{name} {own[TUNED[name]]:g}" for name in changed)))


@functools.cache
def _usual(arm: str) -> dict[str, Any]:
    """The default recipe of an arm's points."""
    return dict(recipe_of(Point(arm, 92).config()))


def difference(base: Record, run: Record) -> str:
    """What `run` has that `base` does not, among arm, values and schedule."""
    before, after = ([*title(r).split(", "), _schedule(r.config)] for r in (base, run))
    return ", ".join(word for word in after if word not in before)


def millions(tokens: int) -> str:
    return f"{tokens / 1e6:.0f}M"


def number(value: float | None, digits: str) -> str:
    return "-" if value is None else f"{value:{digits}}"


def _schedule(run: RunConfig) -> str:
    rho = f", ρ {run.optim.log_rho:g}" if run.optim.schedule == "log" else ""
    return f"{run.optim.schedule}{rho}"


def _rate(run: RunConfig) -> str:
    optim = run.optim
    if optim.algorithm != "muon":
        return f"{optim.lr:g}"
    muon = optim.lr if optim.muon_lr is None else optim.muon_lr
    return f"{optim.lr:g}, Muon {muon:g}"
