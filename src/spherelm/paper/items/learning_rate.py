"""Figure 7: the selection of the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.model.config import ARCH_NAMES, ARCHS
from spherelm.paper import figures
from spherelm.paper.item import Item
from spherelm.paper.points import BASELINE, FAST_ALPHA, Context, Model, Point
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.size import Size
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Axis, Picture, Role, Series, described, slug

SLOW = "nGPT, α at 0.1"
ROLES: dict[str, Role] = {"GPT": "gpt", "nGPT": "ngpt", SLOW: "third"}
SENSITIVE: tuple[Model, Context] = ("1B", "8k")
"""Where the paper found nGPT sensitive to the rate, and stored alpha at 0.1."""


def _series(size: Size, model: Model, context: Context) -> dict[str, list[Point]]:
    """The curves of a panel, each with a run per rate."""
    ladder = [(rate, size.rate_budget) for rate in size.rates]
    kinds = {ARCH_NAMES[arch]: (arch, BASELINE) for arch in ARCHS}
    if (model, context) == SENSITIVE:
        kinds = {
            "GPT": ("gpt", BASELINE),
            "nGPT": ("ngpt", FAST_ALPHA),
            SLOW: ("ngpt", BASELINE),
        }
    return {
        name: [Point(arch, model, context, budget, rate, variant) for rate, budget in ladder]
        for name, (arch, variant) in kinds.items()
    }


def _points(size: Size) -> Sequence[Point]:
    return [
        point for panel in size.panels for line in _series(size, *panel).values() for point in line
    ]


def _make(bench: Workbench) -> Result:
    rows: list[list[Cell]] = []
    best: list[list[Cell]] = []
    shown = []
    for model, context in bench.size.panels:
        names = bench.size.model_name(model), bench.size.context_name(context)
        lines = []
        for name, line in _series(bench.size, model, context).items():
            runs = [bench.record(point) for point in line]
            found = [(run.config.optim.lr, run.loss if run.finished else None) for run in runs]
            rows += [[*names, name, lr, loss] for lr, loss in found]
            ended = [(lr, loss) for lr, loss in found if loss is not None]
            lr, loss = min(ended, key=lambda pair: pair[1], default=(None, None))
            at_end = lr in (found[0][0], found[-1][0])
            where = "at the end of the ladder" if at_end else "inside the ladder"
            best.append([*names, name, lr, loss, where if ended else "all diverged"])
            role = ROLES[name]
            lines.append(Series(name, role, ended, square=name == "GPT", dotted=name == "nGPT"))
        ticks = figures.ticks_at([x for each in lines for x, _ in each.points])
        chart = described(
            slug("rates", model, context),
            f"{names[0]}, context {names[1]}",
            Axis("initial learning rate", log=True, ticks=ticks),
            Axis("final validation loss"),
            lines,
        )
        shown.append(Picture(chart, "Solid with squares: GPT. Dotted with circles: nGPT."))
    key = [Column("model"), Column("context"), Column("curve")]
    key.append(Column("learning rate", whose="ours"))
    key.append(Column("final loss", "nats", "ours", digits=3))
    return Result(
        [
            Table("best", "The best rate of each curve", [*key, Column("where")], best),
            Table("runs", "Every run", key, rows),
        ],
        shown,
        [
            "The paper prints no rates but 1e-3 for its ablations and 2e-3 for its histograms: "
            "the ladder is ours. A best rate at the end of its ladder is not a best rate yet.",
            f"Every run has the budget of the paper's {bench.size.rate_budget} iterations.",
        ],
    )


ITEM = Item(
    "learning-rate",
    "Figure 7",
    "Selection of the initial learning rate",
    "final loss of GPT and nGPT against the learning rate, by model and context",
    _points,
    _make,
    weights=False,
)
