"""The runs that make up the study, as data, the most informative first.

Whatever is not specific to nGPT (schedules, beta2, momentum, the final rate) is also tried on the
baselines, and every arm is tuned with equally many runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from spherelm.config import Schedule
from spherelm.paper.ablations import TABLES
from spherelm.paper.named import named
from spherelm.paper.points import BASELINE
from spherelm.paper.scaling.arms import ARMS, BOTH, LEADERS, MAIN
from spherelm.paper.scaling.point import Point

EARLIER = {"ngpt": 8e-3, "gpt": 2e-3}
"""Rates at which schedules and fp8 were compared; GPT's later turned out to be too low."""
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
_QUICK = (("momentum", 0.9),)
"""The change that helped most at 46M tokens, above all for GPT's best baseline."""
_TOGETHER = {
    "ngpt-muon": (("momentum", 0.9), ("warmup", 0.05)),
    "gpt-qk-muon": (("momentum", 0.9), ("init", 0.45)),
    "ngpt": (("beta2", 0.99), ("warmup", 0.05)),
    "gpt": (("beta2", 0.99), ("init", 0.45)),
}
"""For each arm, two values changed at once."""
_FROM = {"gpt-qk-muon": _QUICK}
"""What an arm already changes when values at 92M tokens, and rates of kinds, are tried on top; the
other arms start from their own values."""


_AT_NANO = (
    (("momentum", 0.8),),
    (("momentum", 0.8), ("warmup", 0.05), ("init", 0.5)),
)
"""What the sweep of the preset `nano-muon` changed about the best baseline, part of it and all."""
_KINDS = ("E_input", "E_output", "factors")
"""Kinds of parameters, besides the blocks' matrices, that may benefit from a rate of their own."""


def _kinds() -> list[Point]:
    """Rates of kinds of parameters: at 46M tokens a quarter and twice the arm's own. At 92M and
    184M the higher one of E_input, the only one that helped, and the lower one of the factors:
    the only one that cost nGPT nothing, while doubling it was what raised the loss."""
    tried = [(46, kind, share) for kind in _KINDS for share in (0.25, 2.0)]
    longer = [(m, *of) for of in (("E_input", 2.0), ("factors", 0.25)) for m in (92, 184)]
    return [
        Point(arm, millions, tuned=(*_FROM.get(arm, ()), (kind, share)))
        for millions, kind, share in (*tried, *longer)
        for arm in reversed(LEADERS)
    ]


def ladders(arm: str) -> Mapping[str, tuple[float, float]]:
    """The neighbours of an arm's own values, equally many for each arm. A deviation of
    0.45/sqrt(512) is the paper's 0.02."""
    muon = ARMS[arm].fields.get("optim.algorithm") == "muon"
    optimizer = {"momentum": (0.9, 0.98)} if muon else {"beta2": (0.9, 0.99)}
    return (_NGPT_LADDERS if ARMS[arm].ngpt else _GPT_LADDERS) | optimizer


BEST_AT_92 = (
    Point("ngpt-muon", 92, lr=5.66e-3),
    Point("gpt-qk-muon", 92, lr=16e-3, tuned=_QUICK),
    Point("gpt", 92, tuned=(("decay", 0.3),)),
    Point("ngpt", 92),
)
"""The best of each arm by seed 0 so far."""
SEEDED = (Point("ngpt-muon", 92), *BEST_AT_92[1:])
"""For each arm a setting with three seeds at 92M tokens, used at other contexts and sizes, too."""


BEST_AT_184 = (
    Point("ngpt-muon", 184, lr=_LONG["ngpt-muon"]),
    Point("gpt-qk-muon", 184, lr=_LONG["gpt-qk-muon"]),
    Point("gpt", 184, lr=_LONG["gpt"], tuned=(("decay", 0.3),)),
    Point("ngpt", 184, lr=_LONG["ngpt"]),
)
"""The best of each arm; GPT with the decay that helped it at 92M and 368M."""


_RATES = {
    "ngpt-muon": ((5.66e-3, None), (16e-3, 8e-3), (8e-3, 16e-3)),
    "gpt-qk-muon": ((16e-3, None), (16e-3, 8e-3), (32e-3, None)),
}
"""At 92M tokens: (AdamW's rate, Muon's rate)."""


def _descent() -> list[Point]:
    """At 92M tokens: other rates, and the neighbours of every arm's own values, one at a time."""
    rates = [
        Point("ngpt", 92, lr=5.66e-3),
        *(Point("ngpt-muon", 92, lr=lr, muon_lr=muon) for lr, muon in _RATES["ngpt-muon"]),
        *(
            Point("gpt-qk-muon", 92, lr=lr, muon_lr=muon, tuned=_QUICK)
            for lr, muon in _RATES["gpt-qk-muon"]
        ),
    ]
    values = [
        Point(arm, 92, tuned=(*_FROM.get(arm, ()), (name, value)))
        for arm in LEADERS
        for name, values in ladders(arm).items()
        for value in values
        if name not in dict(_FROM.get(arm, ()))
    ]
    return [*rates, *(Point(arm, 92, tuned=_QUICK) for arm in LEADERS[2:]), *values]


def _best_baseline() -> list[Point]:
    """What tuned the best baseline at `nano`; then neighbours of the rates and, at 92M tokens, of
    the other values of this arm, which became the best only through a recipe (tied embeddings)."""
    best = _tied(BEST_AT_92[1])
    kinds = (("E_input", 0.25), ("E_input", 2.0), ("factors", 0.25))
    return [
        *(dataclasses.replace(best, tuned=values) for values in _AT_NANO),
        *(dataclasses.replace(best, lr=lr) for lr in rates_around(best.peak)),
        *(dataclasses.replace(best, muon_lr=lr) for lr in rates_around(best.peak)),
        *(dataclasses.replace(best, lr=lr, muon_lr=best.peak) for lr in rates_around(best.peak)),
        dataclasses.replace(best, tuned=()),  # a momentum of 0.95
        dataclasses.replace(best, millions=184),
        dataclasses.replace(_tied(BEST_AT_184[1]), lr=BEST_AT_184[1].peak / 2),
        *(
            dataclasses.replace(best, tuned=(*best.tuned, (name, value)))
            for name, values in ladders(best.arm).items()
            for value in values
            if name not in dict(best.tuned)
        ),
        *(dataclasses.replace(best, tuned=(*best.tuned, kind)) for kind in kinds),
    ]


def _queue() -> list[Point]:
    """Each arm and schedule; the best so far in longer runs and with more seeds; rates and tuned
    values; then other contexts, recipes, the paper's ablations, fp8, and the larger model."""
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
        *_kinds(),
        *(Point(arm, 92, tuned=paper) for arm, paper in _PAPER.items()),
        *(Point(arm, 46, tuned=values) for arm, values in _TOGETHER.items()),
        *_descent(),
    ]
    # Longer runs of what was best at 92M tokens, and of what helped most at 46M.
    carried = [
        *(dataclasses.replace(p, millions=m, seed=0) for m in (184, 368) for p in BEST_AT_92),
        *(Point(arm, m, lr=_LONG[arm], tuned=_QUICK) for m in (184, 368) for arm in LEADERS[2:]),
    ]
    # A high rate that falls early, which may suit longer runs if rows do not grow.
    early = [Point(arm, 184, "log", log_rho=rho) for rho in (0.3, 1.0) for arm in LEADERS]
    longest = [Point(arm, 368, lr=part * _LONG[arm]) for part in (1, 1 / 2, 2) for arm in LEADERS]
    seeds = [
        *(Point(arm, 92, seed=seed) for seed in (1, 2) for arm in LEADERS),
        *(Point("gpt", 92, lr=EARLIER["gpt"], seed=seed) for seed in (1, 2)),
        *(dataclasses.replace(point, seed=seed) for seed in (1, 2) for point in BEST_AT_92),
        *(dataclasses.replace(point, seed=seed) for seed in (1, 2) for point in BEST_AT_184),
    ]
    # GPT also with a decay of 0.1, as in the paper's items, and nGPT with one more rate.
    contexts = [
        dataclasses.replace(point, context=context, millions=tokens)
        for points in (SEEDED, (Point("gpt", 92), Point("ngpt", 92, lr=4e-3)))
        for context, tokens in ((1024, 92), (1024, 46), (1024, 184), (8192, 92))
        for point in points
    ]
    recipes = [
        *(Point(name, 46) for name, arm in ARMS.items() if arm.base and arm.compared),
        *(Point(arm, 46, tuned=(("final", 0.1),)) for arm in LEADERS),
        # The only recipe that helped at 46M tokens (and only the best baseline), with the best
        # other settings.
        *(
            _tied(dataclasses.replace(point, seed=seed))
            for seed in range(3)
            for point in (*SEEDED[:2], *BEST_AT_184[:2])
        ),
        # The same at 46M tokens with the momentum and the rates that helped the untied one.
        *(Point("gpt-qk-muon-tied", 46, lr=lr, tuned=_QUICK) for lr in (8e-3, 16e-3)),
        # And wherever the untied arms were run: at the largest budget, and at other contexts.
        *(_tied(dataclasses.replace(point, millions=368)) for point in BEST_AT_184[:2]),
        *(
            _tied(dataclasses.replace(point, context=context))
            for context in (1024, 8192)
            for point in SEEDED[:2]
        ),
        *_best_baseline(),
    ]
    # nuGPT's claim: the best rate is the same for all widths.
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
    # A wider model needs lower rates: for every arm by 1/sqrt(2), about 512/768.
    larger = [
        dataclasses.replace(
            point, size="12x768", millions=tokens, lr=float(f"{point.peak / math.sqrt(2):.3g}")
        )
        for tokens in (92, 46, 184)
        for point in SEEDED
    ]
    first = arms + carried + seeds + longest + rates + tuned + early + contexts + recipes
    # A run may be asked for twice: as an arm's own, and as a neighbour of another rate.
    queue = first + ablated + rounded + larger + widths
    return list({point.id: point for point in queue}.values())


def _tied(point: Point) -> Point:
    """The same with tied embeddings."""
    return dataclasses.replace(point, arm=f"{point.arm}-tied")


def rates_around(lr: float) -> tuple[float, float]:
    """The neighbours of a rate, which show whether it is an optimum."""
    return lr / 2, lr * 2


GRID: tuple[Point, ...] = tuple(_queue())
"""Every run, in the order of training."""


def chosen(patterns: str) -> list[Point]:
    """The points that `--only` names."""
    return named(GRID, patterns, lambda point: point.id, "--list")
