"""Figures 5 and 11: condition numbers of attention and MLP matrices by layer."""

from __future__ import annotations

import statistics

from spherelm.paper import insides
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.workbench import Workbench


def _make(bench: Workbench) -> Result:
    from spherelm.inspect import weight_charts
    from spherelm.inspect.conditions import ATTENTION
    from spherelm.inspect.picture import symbol_of

    models = insides.look(bench, insides.points(bench.size))
    columns = [
        Column("matrix"),
        Column("model"),
        Column("median over layers", whose="ours"),
        Column("largest over layers", whose="ours"),
        Column("median, rows normalized", whose="ours"),
        Column("reading", whose="paper"),
    ]
    rows: list[list[Cell]] = []
    for point, model, each in insides.by_part(models, lambda model: model.conditions):
        normalized = each.rows_normalized
        said = {"gpt": "significantly higher", "ngpt": "lower"}[point.arch]
        rows.append(
            [
                symbol_of(each.matrix),
                model.label,
                statistics.median(each.by_layer),
                max(each.by_layer),
                None if normalized is None else statistics.median(normalized),
                said if each.matrix in ATTENTION else None,
            ]
        )
    return Result(
        [Table("conditions", "Condition numbers", columns, rows)],
        insides.figures_by_model(bench.size, models, weight_charts.conditions),
        [
            "For attention matrices, each layer shows the median over heads. Dotted: GPT's after "
            "its rows were normalized (Figure 11).",
            *insides.NOTES,
        ],
    )


ITEM = Item(
    "condition-numbers",
    "Figures 5 and 11",
    "Condition numbers by layer",
    "condition numbers of attention and MLP matrices, GPT's also with rows normalized",
    insides.points,
    _make,
)
