"""Shared by the items of the paper's three ablation tables."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.paper.ablations import BASELINE_LOSS, COLUMNS, TABLES, Ablation, Table, names
from spherelm.paper.points import BASELINE, Point
from spherelm.paper.result import Cell, both
from spherelm.paper.scores import NOT_SCORED, available, average, scores, source_of
from spherelm.paper.workbench import Workbench

RESULTS = (
    *both("final loss", "nats", digits=3),
    *both("change of loss", "%", digits=2),
    *both("average accuracy", "%", digits=2),
)
"""The last columns of each table."""


def point_of(name: str) -> Point:
    """The run of a row: the 0.5B nGPT at 1k, as in the paper."""
    return Point("ngpt", variant=name)


def points_of(table: Table) -> list[Point]:
    return [point_of(name) for name in names(table)]


def rows_of(bench: Workbench, table: Table) -> list[tuple[Ablation, Point, list[Cell]]]:
    """Each row of a table with its run and the cells of `RESULTS`."""
    baseline = bench.record(point_of(BASELINE))
    found = []
    for row in bench.each(TABLES[table], "rows"):
        point = point_of(row.name)
        run = bench.record(point)
        loss = run.loss if run.finished else None
        change = accuracy = None
        if loss is not None and baseline.finished:
            change = 100 * (loss / baseline.loss - 1)
        if loss is not None and available(bench):
            accuracy = average(scores(bench, point))
        reported = row.reported
        cells: list[Cell] = [
            *(loss, reported.loss, change, reported.loss_percent),
            *(accuracy, reported.accuracy),
        ]
        found.append((row, point, cells))
    return found


def means_of(bench: Workbench, point: Point, column: str) -> tuple[float, ...]:
    """Means of a column's factors after training; empty if the run diverged."""
    if not bench.record(point).finished:
        return ()

    from spherelm.inspect.factors import look_at_factors

    by_name = {f.name: f.all_layers.mean for f in look_at_factors(bench.model(point).model)}
    return tuple(by_name[name] for name in COLUMNS[column])


def shown_means(values: Sequence[float]) -> str:
    return " & ".join(f"{value:.4g}" for value in values) or "–"


def notes_of(bench: Workbench) -> list[str]:
    said = [
        f"The paper's rows are 0.5B at 1k, 100k iterations; its first row has a loss of "
        f"{BASELINE_LOSS}. Here the first row is {bench.size.job(point_of(BASELINE)).id}.",
        "One seed per row: another seed can change the loss as much as the paper's small changes.",
    ]
    model = bench.size.config(point_of(BASELINE)).model
    starts = [model.resolve_scale(name).init for name in ("s_z", "alpha_attn")]
    if starts != [1.0, 0.05]:
        said.append(
            f"Unless a row changes them, s_z starts at {starts[0]:g} and α at {starts[1]:g}; in "
            "the paper at 1 and 0.05, which are meant for more steps and layers."
        )
    if available(bench):
        return [*said, f"Accuracy is on questions from {source_of(bench)}."]
    return [*said, NOT_SCORED]
