"""Table 5: scalars or fixed values in place of learned vectors."""

from __future__ import annotations

from spherelm.paper import reported
from spherelm.paper.ablation_rows import (
    RESULTS,
    means_of,
    notes_of,
    points_of,
    rows_of,
    shown_means,
)
from spherelm.paper.ablations import COLUMNS
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.workbench import Workbench

TITLES = {"s_qk": "s_qk", "s_u": "s_u & s_ν", "s_z": "s_z", "alpha": "α_A & α_M"}
_WORDS = {"vector": "vector", "scalar": "scalar", "fixed": "value"}
"""How the paper calls the modes."""


def _make(bench: Workbench) -> Result:
    columns = [
        *(
            Column(TITLES[section], whose=whose)
            for section in COLUMNS
            for whose in ("ours", "paper")
        ),
        *RESULTS,
    ]
    rows: list[list[Cell]] = []
    for row, point, cells in rows_of(bench, "scalar"):
        model = bench.size.configure(bench.size, point).model
        means: list[Cell] = []
        for section, factors in COLUMNS.items():
            mode = _WORDS[model.resolve_scale(factors[0]).mode]
            means.append(f"{mode} = {shown_means(means_of(bench, point, section))}")
            means.append(f"{mode} = {shown_means(row.reported.means[section])}")
        rows.append([*means, *cells])
    return Result(
        reported.FINDINGS["ablation-scalar"],
        [
            Table(
                "scalar",
                "Scalars or fixed values in place of learned vectors",
                columns,
                rows,
            )
        ],
        notes=[
            *notes_of(bench),
            "The numbers of factors are means over all layers. The paper prints one number for a "
            "scalar s_u and s_ν; here they are two, of which the one on u changes nothing.",
        ],
    )


ITEM = Item(
    "ablation-scalar",
    "Table 5",
    "Scalars or fixed values in place of vectors",
    "loss, accuracy and learned means with scalar or fixed factors and eigen learning rates",
    lambda size: points_of("scalar"),
    _make,
)
