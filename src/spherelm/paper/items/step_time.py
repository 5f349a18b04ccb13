"""Appendix 'Time cost per step': the time of a training step, nGPT's beside GPT's."""

from __future__ import annotations

from spherelm.model.config import ARCHS
from spherelm.paper import reported
from spherelm.paper.item import Item
from spherelm.paper.points import Point
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.workbench import Workbench


def _make(bench: Workbench) -> Result:
    from spherelm.bench.report import environment
    from spherelm.paper.step_times import step_times, tokens_of

    device = bench.device
    rows: list[list[Cell]] = []
    for model, context in bench.each(bench.size.panels, "pairs timed"):
        runs = {a: bench.size.config(Point(a, model, context)) for a in ARCHS}
        times = step_times(dict(runs.items()), device)
        gpt, ngpt = times["gpt"].median, times["ngpt"].median
        said = reported.STEP_OVERHEAD.get(context)
        rows.append(
            [
                bench.size.model_name(model),
                bench.size.context_name(context),
                tokens_of(runs["gpt"], device),
                gpt,
                ngpt,
                100 * (ngpt / gpt - 1),
                None if said is None else 100 * said,
            ]
        )
    columns = [
        Column("model"),
        Column("context"),
        Column("step", "tokens"),
        Column("GPT", "ms", "ours", digits=2),
        Column("nGPT", "ms", "ours", digits=2),
        Column("longer by", "%", "ours", digits=1),
        Column("longer by", "%", "paper", digits=0),
    ]
    made_with = ", ".join(f"{key} {value}" for key, value in environment(device).items())
    return Result(
        [Table("step-time", "A training step", columns, rows)],
        notes=[
            f"Medians of 20 steps, GPT and nGPT taking turns in one process, with none of our runs "
            f"beside it: {made_with}.",
            "A step is forward, backward, clipping and optimizer on one device; the paper's is "
            "for 64 A100 with an internal library whose norms are not fused for nGPT. It prints no "
            "number for 1k.",
        ],
    )


ITEM = Item(
    "step-time",
    "Appendix 'Time cost per step'",
    "Time per training step",
    "milliseconds of a training step of GPT and nGPT, by model and context",
    lambda size: [],
    _make,
    weights=False,
    cuda=True,
)
