"""Figure 2: the final loss of runs with different budgets, and the speed-up derived from it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from spherelm.model.config import ARCHS, Arch
from spherelm.paper import figures, fit, reported
from spherelm.paper.item import Item
from spherelm.paper.points import BUDGETS, CONTEXTS, Context, Model, Point
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.size import Size
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Axis, Chart, Picture, slug, token_unit


def points(size: Size) -> Sequence[Point]:
    """The whole grid, which most other items share runs with."""
    return [
        Point(arch, model, context, budget)
        for model, context in size.panels
        for budget in BUDGETS
        for arch in ARCHS
    ]


def _make(bench: Workbench) -> Result:
    panels = [
        (model, context, _ends(bench, model, context)) for model, context in bench.size.panels
    ]
    rows: list[list[Cell]] = []
    factors: dict[tuple[Model, Context], list[fit.Factor]] = {}
    for model, context, ends in panels:
        found = {
            tokens: fit.factor(
                {budget: [loss] for budget, loss in ends["gpt"].items()}, tokens, [loss]
            )
            for tokens, loss in ends["ngpt"].items()
        }
        factors[model, context] = [factor for factor in found.values() if factor is not None]
        names = bench.size.model_name(model), bench.size.context_name(context)
        for budget in BUDGETS:
            point = Point("ngpt", model, context, budget)
            tokens = bench.size.job(point).tokens
            theirs = reported.PRINTED_LOSS if point == reported.PRINTED else None
            losses = ends["gpt"].get(tokens), ends["ngpt"].get(tokens), theirs
            needs = _DIVERGED
            if tokens in found:
                needs = _factor(found[tokens], ends["gpt"], ends["ngpt"][tokens])
            rows.append([*names, tokens, *losses, *needs])
    columns = [
        Column("model"),
        Column("context"),
        Column("budget", "tokens"),
        Column("GPT's loss", "nats", "ours", digits=3),
        *both("nGPT's loss", "nats", digits=3),
        Column("GPT needs", "tokens", "ours", digits=0),
        Column("speed-up", "×", "ours", digits=2),
        Column("which is"),
    ]
    return Result(
        [
            Table("speed-up", "Speed-up by context", _SUMMARY, list(_summary(bench, factors))),
            Table("losses", "Loss at the end of every run", columns, rows),
        ],
        [Picture(_chart(bench, model, context, ends), _CAPTION) for model, context, ends in panels],
        [
            "The speed-up is the tokens that GPT needs for the loss at which nGPT ends, by a law "
            "E + A·D^−b fitted to the ends of GPT's finished runs, divided by nGPT's tokens. There "
            "is one seed per run, so do not trust small differences. The median is over the "
            "budgets that have a speed-up: there is none where nGPT diverged, or ended too far "
            "below or above GPT's runs, and the row says which.",
            "The paper prints one of its final losses, in its ablation tables, and two of its "
            "budgets, 100k and 200k iterations; 25k and 50k are ours.",
        ],
    )


_SUMMARY = [
    Column("context"),
    Column("model"),
    Column("budgets with a speed-up"),
    Column("speed-up, median", "×", "ours", digits=2),
    Column("speed-up, about", "×", "paper", digits=0),
]
_DIVERGED: list[Cell] = [None, None, "nGPT diverged"]
_CAPTION = "Each point is the end of a separate run whose learning rate has come down to zero."


def _summary(
    bench: Workbench, factors: dict[tuple[Model, Context], list[fit.Factor]]
) -> Iterator[list[Cell]]:
    for context in CONTEXTS:
        for model in bench.size.grid_models:
            found = [factor.value for factor in factors[model, context]]
            yield [
                bench.size.context_name(context),
                bench.size.model_name(model),
                len(found),
                statistics.median(found) if found else None,
                reported.SPEED_UP[context],
            ]


def _ends(bench: Workbench, model: Model, context: Context) -> dict[Arch, dict[int, float]]:
    """By architecture: the final loss for each budget in tokens; diverged runs are left out."""
    runs = {
        arch: [bench.record(Point(arch, model, context, budget)) for budget in BUDGETS]
        for arch in ARCHS
    }
    return {
        arch: {run.tokens: run.loss for run in found if run.finished}
        for arch, found in runs.items()
    }


def _factor(found: fit.Factor | None, gpt: Mapping[int, float], loss: float) -> list[Cell]:
    """The tokens GPT needs for nGPT's `loss`, the speed-up, and where on GPT's curve they lie."""
    if found is None:
        if len(gpt) > 1 and loss < min(gpt.values()):
            return [None, None, "too far beyond GPT's runs: nGPT is ahead"]
        if len(gpt) > 1 and loss > max(gpt.values()):
            return [None, None, "too far before GPT's runs: nGPT is behind"]
        return [None, None, "no fit"]
    if found.needed < min(gpt):
        how = "before GPT's smallest budget"
    else:
        how = "beyond GPT's largest budget" if found.extrapolated else "between GPT's budgets"
    return [found.needed, found.value, how]


def _chart(
    bench: Workbench, model: Model, context: Context, ends: dict[Arch, dict[int, float]]
) -> Chart:
    unit, called = token_unit(max(ends["gpt"], default=1))
    curves = {
        arch: [(tokens / unit, loss) for tokens, loss in found.items()]
        for arch, found in ends.items()
    }
    ticks = figures.ticks_at([x for curve in curves.values() for x, _ in curve])
    return figures.pair(
        slug("budget", model, context),
        f"{bench.size.model_name(model)}, context {bench.size.context_name(context)}",
        Axis(called, log=True, ticks=ticks),
        Axis("final validation loss"),
        curves,
    )


ITEM = Item(
    "token-budget",
    "Figure 2",
    "Final loss against the token budget",
    "loss at the end of runs of four budgets at three contexts, and the speed-up factor",
    points,
    _make,
    weights=False,
)
