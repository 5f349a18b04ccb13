"""Table 6: without QK-norm, and with SLERP, with the time of a step."""

from __future__ import annotations

from spherelm.paper.ablation_rows import RESULTS, notes_of, points_of, rows_of
from spherelm.paper.item import Item
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.workbench import Workbench

TITLES = {
    "baseline": "baseline nGPT",
    "no-qk-norm": "1) remove QK-norm",
    "slerp": "2) replace LERP with SLERP",
}


def _make(bench: Workbench) -> Result:
    columns = [
        Column("model"),
        Column("time per step", "s", "ours", digits=4),
        Column("time per step", "s", "paper", digits=3),
        *both("change of time", "%", digits=1),
        *RESULTS,
    ]
    found = rows_of(bench, "norm")
    times = _times(bench)
    first = found[0][0]
    rows: list[list[Cell]] = []
    for row, _, cells in found:
        ours = times.get(row.name)
        theirs, base = row.reported.step_seconds, first.reported.step_seconds
        assert theirs is not None
        assert base is not None
        rows.append(
            [
                TITLES[row.name],
                ours,
                theirs,
                None if ours is None else 100 * (ours / times[first.name] - 1),
                100 * (theirs / base - 1),
                *cells,
            ]
        )
    notes = [
        *notes_of(bench),
        "The time of a step is the median of 20, measured alone on the device after training, the "
        "three models taking turns; the paper's is for 64 A100.",
    ]
    if not times:
        notes.append("Time per step was not measured: at this size it needs a CUDA device.")
    return Result(
        [Table("norm", "Ablations of the design choices of nGPT", columns, rows)],
        notes=notes,
    )


def _times(bench: Workbench) -> dict[str, float]:
    """Seconds per step of each row; empty if measuring would take longer than the training did."""
    from spherelm.paper.step_times import step_times

    if not bench.size.built_in and bench.device.type != "cuda":
        return {}
    runs = {point.variant: bench.size.config(point) for point in points_of("norm")}
    measured = step_times(runs, bench.device)
    return {name: timing.median / 1e3 for name, timing in measured.items()}


ITEM = Item(
    "ablation-norm",
    "Table 6",
    "Without QK-norm, and with SLERP",
    "loss, accuracy and time per step without QK-norm and with SLERP in place of LERP",
    lambda size: points_of("norm"),
    _make,
)
