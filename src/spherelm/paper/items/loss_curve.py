"""Figure 1: the validation loss of GPT and nGPT while they train."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.model.config import ARCHS
from spherelm.paper import figures, reported
from spherelm.paper.item import Item
from spherelm.paper.points import Point
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.size import Size
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Axis, Picture, Span


def _points(size: Size) -> Sequence[Point]:
    return [Point(arch, size.largest, "4k", "200k") for arch in ARCHS]


def _make(bench: Workbench) -> Result:
    from spherelm.compare.comparison import tokens_to_reach

    gpt, ngpt = (bench.record(point) for point in _points(bench.size))
    per_step = gpt.config.tokens_per_step
    steps = gpt.config.train.steps
    ends = [run.loss if run.finished else None for run in (gpt, ngpt)]
    reached = None if ends[0] is None else tokens_to_reach(ngpt.curve, ends[0])
    at = None if reached is None else reached / per_step
    factor = None if at is None else steps / at
    paper = reported.FIGURE_1
    rows: list[list[Cell]] = [
        ["GPT's loss at its end", "nats", ends[0], None],
        ["nGPT's loss at its end", "nats", ends[1], None],
        ["GPT's iterations", "", steps, paper["gpt_iterations"]],
        ["nGPT's iterations to GPT's last loss", "", at, paper["ngpt_iterations"]],
        ["speed-up in iterations and tokens", "×", factor, paper["speed_up"]],
    ]
    columns = [
        Column("what"),
        Column("unit"),
        *both("value"),
    ]
    curves = {
        run.config.model.arch: [(tokens / per_step, loss) for tokens, loss in run.curve]
        for run in (gpt, ngpt)
    }
    span = None if at is None or factor is None else Span(at, steps, gpt.loss, f"{factor:.2f}×")
    model = bench.size.model_name(bench.size.largest)
    chart = figures.pair(
        "loss-curve",
        f"Validation loss while training: {model}, context {bench.size.context_name('4k')}",
        Axis("iterations", from_zero=True),
        Axis("validation loss"),
        curves,
        span,
    )
    caption = (
        "The dashed line runs from GPT's end to where nGPT has the same loss, interpolated between "
        "two evaluations. At that point nGPT's learning rate has not come down yet."
        if at is not None
        else "GPT diverged here: it has no last loss to reach."
        if ends[0] is None
        else "nGPT does not reach GPT's last loss here."
    )
    notes = ["The paper prints neither loss; its 10× is read off the curves, as ours is."]
    return Result(
        [Table("speed-up", "Where nGPT has GPT's last loss", columns, rows)],
        [Picture(chart, caption)],
        notes,
    )


ITEM = Item(
    "loss-curve",
    "Figure 1",
    "Validation loss during training",
    "loss of GPT and nGPT against iterations, and where nGPT has GPT's last loss",
    _points,
    _make,
    weights=False,
)
