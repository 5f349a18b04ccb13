"""Figures 12 and 13: the full attention matrices of the 3rd and 4th layer."""

from __future__ import annotations

from spherelm.paper import insides
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Picture

LAYERS = (3, 4)
"""Counted from 1, as the paper does."""


def _make(bench: Workbench) -> Result:
    from spherelm.inspect import weight_charts
    from spherelm.inspect.picture import symbol_of

    columns = [
        Column("layer"),
        Column("matrix"),
        Column("model"),
        Column("row norm, mean", whose="ours"),
        Column("row norm, spread", "std", "ours"),
        Column("singular values above 1 % of the largest", "%", "ours", digits=1),
        Column("reading", whose="paper"),
    ]
    rows: list[list[Cell]] = []
    figures: list[Picture] = []
    fewest = min(shape.layers for shape in bench.size.models.values())
    layers = sorted({min(layer, fewest) for layer in LAYERS})
    for layer in layers:
        models = insides.look(bench, insides.points(bench.size), layer)
        for point, model, each in insides.by_part(models, lambda model: model.matrices):
            values = each.singular_values
            large = sum(value > 0.01 * values[0] for value in values)
            said = {"gpt": "degenerates to a lower rank", "ngpt": "does not"}[point.arch]
            rows.append(
                [
                    layer,
                    symbol_of(each.matrix),
                    model.label,
                    each.norms.mean,
                    each.norms.std if each.norms.std > 1e-6 else 0.0,
                    100 * large / len(values),
                    said,
                ]
            )
        figures += insides.figures_by_model(
            bench.size, models, weight_charts.one_layer, f"-layer-{layer}"
        )
    notes = [*insides.NOTES]
    if layers != list(LAYERS):
        notes.append(f"These models have {fewest} layers, so {layers} are shown, not 3 and 4.")
    return Result(
        [Table("matrices", "Attention matrices, all heads together", columns, rows)],
        figures,
        notes,
    )


ITEM = Item(
    "layer-matrices",
    "Figures 12 and 13",
    "The attention matrices of two layers",
    "row norms and singular values of the full W_q, W_k, W_v and W_o of layers 3 and 4",
    insides.points,
    _make,
)
