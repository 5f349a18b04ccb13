"""Which runs the study is made of, as data: the most informative ones first.

Whatever is not nGPT's alone (schedules, beta2, momentum, the final rate) is offered to the
baselines, too, and each arm is tuned by as many runs as every other.
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
_QUICK = (("momentum", 0.9),)
"""What helped most at 46M tokens, GPT's best baseline above all."""
_TOGETHER = {
    "ngpt-muon": (("momentum", 0.9), ("warmup", 0.05)),
    "gpt-qk-muon": (("momentum", 0.9), ("init", 0.45)),
    "ngpt": (("beta2", 0.99), ("warmup", 0.05)),
    "gpt": (("beta2", 0.99), ("init", 0.45)),
}
"""Two values at once, of each arm."""
_FROM = {"gpt-qk-muon": _QUICK}
"""What values are added to that are tried at 92M tokens, and rates of kinds; the other arms have
their own."""


_KINDS = ("E_input", "E_output", "factors")
"""Kinds of parameters that may want a rate of their own, beside the matrices of the blocks."""


def _kinds() -> list[Point]:
    """Rates of kinds of parameters: at 46M tokens far below the arm's own, and above it. With more
    the higher one of E_input, the only one that helped there, and the lower one of the factors,
    which alone cost nGPT nothing, and whose doubled rate was what made it end high."""
    tried = [(46, kind, share) for kind in _KINDS for share in (0.25, 2.0)]
    longer = [(m, *of) for of in (("E_input", 2.0), ("factors", 0.25)) for m in (92, 184)]
    return [
        Point(arm, millions, tuned=(*_FROM.get(arm, ()), (kind, share)))
        for millions, kind, share in (*tried, *longer)
        for arm in reversed(LEADERS)
    ]


def ladders(arm: str) -> Mapping[str, tuple[float, float]]:
    """The neighbours of an arm's own values, as many for each arm. A deviation of 0.45/sqrt(512) is
    the paper's 0.02."""
    muon = ARMS[arm].fields.get("optim.algorithm") == "muon"
    optimizer = {"momentum": (0.9, 0.98)} if muon else {"beta2": (0.9, 0.99)}
    return (_NGPT_LADDERS if ARMS[arm].ngpt else _GPT_LADDERS) | optimizer


BEST_AT_92 = (
    Point("ngpt-muon", 92, lr=5.66e-3),
    Point("gpt-qk-muon", 92, lr=16e-3, tuned=_QUICK),
    Point("gpt", 92, tuned=(("decay", 0.3),)),
    Point("ngpt", 92),
)
"""Of each arm, by seed 0 so far."""
SEEDED = (Point("ngpt-muon", 92), *BEST_AT_92[1:])
"""Of each arm what has three seeds at 92M tokens: what other contexts and the larger model take."""


BEST_AT_184 = (
    Point("ngpt-muon", 184, lr=_LONG["ngpt-muon"]),
    Point("gpt-qk-muon", 184, lr=_LONG["gpt-qk-muon"]),
    Point("gpt", 184, lr=_LONG["gpt"], tuned=(("decay", 0.3),)),
    Point("ngpt", 184, lr=_LONG["ngpt"]),
)
"""Of each arm; GPT with the decay that helped it at 92M and 368M."""


_RATES = {
    "ngpt-muon": ((5.66e-3, None), (16e-3, 8e-3), (8e-3, 16e-3)),
    "gpt-qk-muon": ((16e-3, None), (16e-3, 8e-3), (32e-3, None)),
}
"""At 92M tokens: AdamW's and Muon's."""


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
    """What became the best baseline only with the recipe that helped it: neighbours of its rates,
    and at 92M tokens of its own values, as many as nGPT with Muon has."""
    best = _tied(BEST_AT_92[1])
    kinds = (("E_input", 0.25), ("E_input", 2.0), ("factors", 0.25))
    return [
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
    """What each arm and schedule gives; what was best so far in longer runs and with more seeds;
    rates and tuned values; then other contexts, recipes, the paper's ablations, eight-bit products,
    and the larger model."""
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
    # What was best at 92M tokens, and what helped most at 46M, in longer runs.
    carried = [
        *(dataclasses.replace(p, millions=m, seed=0) for m in (184, 368) for p in BEST_AT_92),
        *(Point(arm, m, lr=_LONG[arm], tuned=_QUICK) for m in (184, 368) for arm in LEADERS[2:]),
    ]
    # A high rate that falls early: what a longer run may want where rows do not grow.
    early = [Point(arm, 184, "log", log_rho=rho) for rho in (0.3, 1.0) for arm in LEADERS]
    longest = [Point(arm, 368, lr=part * _LONG[arm]) for part in (1, 1 / 2, 2) for arm in LEADERS]
    seeds = [
        *(Point(arm, 92, seed=seed) for seed in (1, 2) for arm in LEADERS),
        *(Point("gpt", 92, lr=EARLIER["gpt"], seed=seed) for seed in (1, 2)),
        *(dataclasses.replace(point, seed=seed) for seed in (1, 2) for point in BEST_AT_92),
        *(dataclasses.replace(point, seed=seed) for seed in (1, 2) for point in BEST_AT_184),
    ]
    # GPT also with a decay of 0.1, as the paper's items have it, and nGPT with one more rate.
    contexts = [
        dataclasses.replace(point, context=context, millions=tokens)
        for points in (SEEDED, (Point("gpt", 92), Point("ngpt", 92, lr=4e-3)))
        for context, tokens in ((1024, 92), (1024, 46), (1024, 184), (8192, 92))
        for point in points
    ]
    recipes = [
        *(Point(name, 46) for name, arm in ARMS.items() if arm.base and arm.compared),
        *(Point(arm, 46, tuned=(("final", 0.1),)) for arm in LEADERS),
        # The one recipe that helped at 46M tokens, the best baseline alone, with what is best else.
        *(
            _tied(dataclasses.replace(point, seed=seed))
            for seed in range(3)
            for point in (*SEEDED[:2], *BEST_AT_184[:2])
        ),
        # The same at 46M tokens with the momentum and the rates that helped the untied one.
        *(Point("gpt-qk-muon-tied", 46, lr=lr, tuned=_QUICK) for lr in (8e-3, 16e-3)),
        # And where the arms without it were run: at the largest budget, and in other contexts.
        *(_tied(dataclasses.replace(point, millions=368)) for point in BEST_AT_184[:2]),
        *(
            _tied(dataclasses.replace(point, context=context))
            for context in (1024, 8192)
            for point in SEEDED[:2]
        ),
        *_best_baseline(),
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
    # A wider model takes lower rates: by half a doubling, about 512/768, for every arm.
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
    """The neighbours of a rate: the optimum must lie inside what was tried."""
    return lr / 2, lr * 2


GRID: tuple[Point, ...] = tuple(_queue())
"""Every run, in the order in which they are made."""


def chosen(patterns: str) -> list[Point]:
    """The points that `--only` names."""
    return named(GRID, patterns, lambda point: point.id, "--list")
