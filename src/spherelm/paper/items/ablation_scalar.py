"""Table 5: scalars or fixed values in place of learned vectors."""

from __future__ import annotations

from spherelm.paper.ablation_rows import (
    RESULTS,
    means_of,
    notes_of,
    points_of,
    rows_of,
    shown_means,
)
from spherelm.paper.ablations import COLUMNS, Ablation
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.workbench import Workbench

TITLES = {"s_qk": "s_qk", "s_u": "s_u & s_ν", "s_z": "s_z", "alpha": "α_A & α_M"}
_WORDS = {"vector": "vector", "scalar": "scalar", "fixed": "value"}
"""The paper's words for the modes."""


def _make(bench: Workbench) -> Result:
    found = rows_of(bench, "scalar")
    means: list[list[Cell]] = []
    for row, point, _ in found:
        model = bench.size.config(point).model
        cells: list[Cell] = [_changed(row)]
        for section, factors in COLUMNS.items():
            mode = _WORDS[model.resolve_scale(factors[0]).mode]
            cells.append(f"{mode} = {shown_means(means_of(bench, point, section))}")
            cells.append(f"{mode} = {shown_means(row.reported.means[section])}")
        means.append(cells)
    of_means = [
        Column("changed"),
        *(column for section in COLUMNS for column in both(TITLES[section])),
    ]
    results = [[_changed(row), *cells] for row, _, cells in found]
    return Result(
        [
            Table("scalar", "Loss and accuracy", [Column("changed"), *RESULTS], results),
            Table("means", "Means of the factors after training", of_means, means),
        ],
        notes=[
            *notes_of(bench),
            "The numbers of factors are means over all layers. The paper prints one number for "
            "scalar s_u and s_ν together; here there are two, and the one on u has no effect.",
        ],
    )


def _changed(row: Ablation) -> str:
    """What a row changes, such as "scalar s_qk, s_u & s_ν"."""
    by_mode: dict[str, list[str]] = {}
    for section, values in row.factors.items():
        by_mode.setdefault(_WORDS[values["mode"]], []).append(TITLES[section])
    return "; ".join(f"{mode} {', '.join(names)}" for mode, names in by_mode.items()) or "nothing"


ITEM = Item(
    "ablation-scalar",
    "Table 5",
    "Scalars or fixed values in place of vectors",
    "loss, accuracy and learned means with scalar or fixed factors and eigen learning rates",
    lambda size: points_of("scalar"),
    _make,
)
