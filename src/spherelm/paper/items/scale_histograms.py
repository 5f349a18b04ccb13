"""Figure 15: how the learned factors are distributed, by context, size, rate and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spherelm.console import format_count
from spherelm.paper.item import Item
from spherelm.paper.points import BUDGETS, CONTEXTS, MODELS, Point
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.size import Size
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Picture, Role, slug

if TYPE_CHECKING:
    from spherelm.inspect.factors import Factor

ROLES: tuple[Role, ...] = ("ngpt", "third", "fourth", "fifth")
RATES = (0.5, 1.0, 2.0)
"""Multiples of the figure's usual rate."""
_SAID = {
    "alpha_attn": ("right with more", "left with more", "stable", "right with more"),
    "alpha_mlp": ("right with more", "left with more", "stable", "right with more"),
    "s_qk": ("stable", "stable", "stable", "stable"),
    "s_u": ("left with more", "right with more", "flatter with more", "right with more"),
    "s_nu": ("left with more", "right with more", "flatter with more", "right with more"),
    "s_z": ("higher mean", "higher mean", None, "higher mean"),
}
"""What the paper observes as context, size, rate and tokens change."""


def _conditions(size: Size) -> dict[str, dict[str, Point]]:
    """The four rows of the figure: what is changed, and the run for each value."""
    usual = size.histogram_rate

    def lr(point: Point) -> str:
        return f"{size.job(point).config.optim.lr:g}"

    contexts = [Point("ngpt", context=context, rate=usual) for context in CONTEXTS]
    models = [Point("ngpt", model, rate=usual) for model in MODELS]
    rates = [Point("ngpt", rate=usual * rate) for rate in RATES]
    budgets = [Point("ngpt", budget=budget, rate=usual) for budget in BUDGETS]
    return {
        "context length": {str(size.contexts[p.context]): p for p in contexts},
        "model size": {size.short_name(p.model): p for p in models},
        "learning rate": {lr(p): p for p in rates},
        "training tokens": {format_count(size.job(p).tokens): p for p in budgets},
    }


def _points(size: Size) -> Sequence[Point]:
    found = [point for row in _conditions(size).values() for point in row.values()]
    return list(dict.fromkeys(found))


def _make(bench: Workbench) -> Result:
    from spherelm.inspect.factors import look_at_factors
    from spherelm.inspect.picture import distributions, symbol_of

    factors: dict[Point, list[Factor]] = {
        point: look_at_factors(bench.model(point).model)
        for point in bench.each(_points(bench.size), "models looked into")
    }
    columns = [
        Column("factor"),
        Column("changed"),
        Column("to"),
        Column("mean", whose="ours"),
        Column("spread", "std", "ours"),
        Column("median", whose="ours"),
        Column("moves", whose="paper"),
    ]
    rows: list[list[Cell]] = []
    shown: list[Picture] = []
    conditions = _conditions(bench.size)
    for place, first in enumerate(factors[_points(bench.size)[0]]):
        symbol = symbol_of(first.name)
        for row, (changed, runs) in enumerate(conditions.items()):
            said = _SAID[first.name][row]
            found = {value: factors[point][place] for value, point in runs.items()}
            for value, each in found.items():
                all_layers = each.all_layers
                numbers = all_layers.mean, all_layers.std, all_layers.median
                rows.append([symbol, changed, value, *numbers, said])
            name = slug("histogram", first.name, changed.replace(" ", "-"))
            caption = f"The paper: {said}." if said else "The paper does not comment on it."
            curves = [
                (value, role, each.all_layers)
                for role, (value, each) in zip(ROLES, found.items(), strict=False)
            ]
            chart = distributions(name, f"{symbol} by {changed}", symbol, curves)
            shown.append(Picture(chart, caption))
    usual = bench.size.job(Point("ngpt", rate=bench.size.histogram_rate))
    return Result(
        [Table("factors", "Learned factors of all layers together", columns, rows)],
        shown,
        [
            f"Everything else is as in the run {usual.id}.",
            "The paper shows the distributions only as pictures.",
        ],
    )


ITEM = Item(
    "scale-histograms",
    "Figure 15",
    "Learned factors by context, size, rate and tokens",
    "histograms of all six learned factors under four changes of the setup",
    _points,
    _make,
)
