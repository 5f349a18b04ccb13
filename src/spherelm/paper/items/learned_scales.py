"""Figure 6: eigen learning rates and scaling factors after training."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.paper import insides, reported
from spherelm.paper.item import Item
from spherelm.paper.points import Model, Point
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.size import Size
from spherelm.paper.workbench import Workbench


def _points(size: Size) -> Sequence[Point]:
    return [point for point in insides.points(size) if point.arch == "ngpt"]


def _reported(name: str, model: Model) -> float | None:
    """The mean that the paper prints."""
    if name == "alpha_attn":
        return reported.ALPHA_MEANS[model][0]
    if name == "alpha_mlp":
        return reported.ALPHA_MEANS[model][1]
    return reported.SCALE_MEANS[name] if model == "0.5B" else None


def _make(bench: Workbench) -> Result:
    from spherelm.inspect import weight_charts
    from spherelm.inspect.picture import symbol_of

    models = insides.look(bench, _points(bench.size))
    columns = [
        Column("factor"),
        Column("model"),
        Column("start", whose="ours"),
        Column("mean", whose="ours"),
        Column("spread", "std", "ours"),
        Column("lowest layer", "mean", "ours"),
        Column("highest layer", "mean", "ours"),
        Column("mean", whose="paper"),
    ]
    rows: list[list[Cell]] = [
        [
            symbol_of(each.name),
            model.label,
            each.start,
            each.all_layers.mean,
            each.all_layers.std,
            min(each.means),
            max(each.means),
            _reported(each.name, point.model),
        ]
        for point, model, each in insides.by_part(models, lambda model: model.factors)
    ]
    return Result(
        [Table("factors", "Learned factors", columns, rows)],
        weight_charts.factors(insides.several(models)).pictures,
        [
            "The paper's means of α are from Figure 6 (100k iterations, context not stated), those "
            "of the other factors from Table 5 (0.5B at 1k); it prints none of these for 1B.",
            "The column 'start' is a factor's starting value, at nano and small not the paper's: "
            "after few steps a factor is still near it.",
        ],
    )


ITEM = Item(
    "learned-scales",
    "Figure 6",
    "Eigen learning rates and scaling factors",
    "alpha_A, alpha_M, s_u, s_ν and s_qk by layer, the distribution of s_z, and their means",
    _points,
    _make,
)
