"""Figure 4: norms, eigenvalues and dot products of the embeddings."""

from __future__ import annotations

from spherelm.paper import insides
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.workbench import Workbench

_SAID = {
    ("E_input", "gpt"): "norms vary significantly; the higher condition number",
    ("E_input", "ngpt"): "norm 1 by design; clusters",
    ("E_output", "gpt"): "norms vary significantly; higher dot products",
    ("E_output", "ngpt"): "norm 1 by design; clusters",
}
"""What the paper reads off its figure."""


def _make(bench: Workbench) -> Result:
    from spherelm.inspect import weight_charts

    models = insides.look(bench, insides.points(bench.size))
    columns = [
        Column("matrix"),
        Column("model"),
        Column("norm, mean", whose="ours"),
        Column("norm, spread", "std", "ours"),
        Column("largest eigenvalue / median", whose="ours"),
        Column("condition number", whose="ours"),
        Column("dot product, mean", whose="ours"),
        Column("dot product, spread", "std", "ours"),
        Column("reading", whose="paper"),
    ]
    rows: list[list[Cell]] = [
        [
            each.name,
            model.label,
            each.norms.mean,
            each.norms.std if each.norms.std > 1e-6 else 0.0,
            each.eigenvalues_over_median[0],
            each.condition,
            each.dot_products.mean,
            each.dot_products.std,
            _SAID[each.name, point.arch],
        ]
        for point, model, each in insides.by_part(models, lambda model: model.embeddings)
    ]
    return Result(
        [Table("embeddings", "Embedding matrices", columns, rows)],
        insides.figures_by_model(bench.size, models, weight_charts.embeddings),
        insides.NOTES,
    )


ITEM = Item(
    "embeddings",
    "Figure 4",
    "Norms, eigenvalues and dot products of the embeddings",
    "input and output embeddings: norms, eigenvalues over their median, dot products",
    insides.points,
    _make,
)
