"""Table 4: starting values and stored scales of the learned factors."""

from __future__ import annotations

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
from spherelm.paper.points import BASELINE
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.workbench import Workbench

SECTIONS = {"s_qk": "s_qk", "s_u": "s_u & s_ν", "s_z": "s_z"}
"""The sections of the table, each headed by the unchanged model."""


def _make(bench: Workbench) -> Result:
    columns = [
        Column("factors"),
        Column("s_init", whose="ours"),
        Column("s_scale", whose="ours"),
        *both("mean after training"),
        *RESULTS,
    ]
    found = rows_of(bench, "init")
    rows: list[list[Cell]] = []
    for section, title in SECTIONS.items():
        for row, point, cells in found:
            if row.name != BASELINE and section not in row.factors:
                continue
            model = bench.size.config(point).model
            scale = model.resolve_scale(COLUMNS[section][0])
            rows.append(
                [
                    title,
                    scale.init,
                    scale.scale,
                    shown_means(means_of(bench, point, section)),
                    shown_means(row.reported.means[section]),
                    *cells,
                ]
            )
    return Result(
        [Table("init", "Ablations of s_init and s_scale", columns, rows)],
        notes=[
            *notes_of(bench),
            "Values that the paper ties to d_model follow this model's width. The first row of "
            "each section is one run.",
        ],
    )


ITEM = Item(
    "ablation-init",
    "Table 4",
    "Ablations of s_init and s_scale",
    "loss, accuracy and learned means with other starting values and stored scales of the factors",
    lambda size: points_of("init"),
    _make,
)
