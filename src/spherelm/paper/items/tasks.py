"""Figures 3, 8, 9 and 10: downstream tasks against the token budget."""

from __future__ import annotations

from collections.abc import Mapping

from spherelm.eval.tasks import PAPER_TASKS
from spherelm.model.config import ARCH_NAMES, ARCHS, Arch
from spherelm.paper import figures, reported
from spherelm.paper.item import Item
from spherelm.paper.items import token_budget
from spherelm.paper.points import BUDGETS, Context, Model, Point
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.scores import average, scores, source_of
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Axis, Chart, Picture, Role, Series, described, slug, token_unit

FIGURES: dict[Context, str] = {"4k": "Figure 3", "1k": "Figure 8", "8k": "Figure 9"}
AVERAGE, TRANSLATION = "average", "wmt14-fr-en"
Scores = Mapping[Point, Mapping[str, float]]


def _make(bench: Workbench) -> Result:
    found: dict[Point, dict[str, float]] = {}
    for point in bench.each(token_budget.points(bench.size), "models asked"):
        known = scores(bench, point, PAPER_TASKS)
        found[point] = known | {AVERAGE: average(known)}
    notes = [
        f"The questions are from {source_of(bench)}.",
        "The paper shows its scores as pictures, except for the average of the 0.5B nGPT at 1k "
        "after 100k iterations (Tables 4 to 6). WMT14 fr-en is BLEU with five examples in the "
        "prompt (Figure 10); the others are accuracy without any.",
    ]
    if bench.tasks is None:
        notes.append(
            "With ten questions per task these scores say nothing about a model; they show that "
            "everything from the model to this page works."
        )
    return Result(
        [_table(bench, context, found) for context in FIGURES],
        [
            Picture(
                _chart(bench, context, name, found),
                f"{'Figure 10' if name == TRANSLATION else FIGURES[context]} of the paper.",
            )
            for context in FIGURES
            for name in (*(task.name for task in PAPER_TASKS), AVERAGE)
        ],
        notes,
    )


def _table(bench: Workbench, context: Context, found: Scores) -> Table:
    columns = [
        Column("model"),
        Column("budget", "tokens"),
        *(
            Column(task.title, "%" if task.metric == "acc" else "BLEU", "ours", digits=1)
            for task in PAPER_TASKS
        ),
        *both("average of five", "%", digits=2),
    ]
    rows: list[list[Cell]] = []
    for model in bench.size.grid_models:
        for arch in ARCHS:
            for budget in BUDGETS:
                point = Point(arch, model, context, budget)
                values = [found[point][task.name] for task in PAPER_TASKS]
                name = f"{ARCH_NAMES[arch]}, {bench.size.model_name(model)}"
                tokens = bench.size.job(point).tokens
                theirs = reported.PRINTED_ACCURACY if point == reported.PRINTED else None
                rows.append([name, tokens, *values, found[point][AVERAGE], theirs])
    title = f"Context {bench.size.context_name(context)} ({FIGURES[context]})"
    return Table(f"tasks-{context}", title, columns, rows)


def _chart(bench: Workbench, context: Context, name: str, found: Scores) -> Chart:
    titles = {task.name: task.title for task in PAPER_TASKS} | {AVERAGE: "Average of five tasks"}
    longest = bench.size.job(Point("gpt", context=context, budget="200k"))
    unit, called = token_unit(longest.tokens)
    lines = []
    roles: dict[tuple[Arch, Model], Role] = {
        ("gpt", "0.5B"): "third",
        ("ngpt", "0.5B"): "fourth",
    }
    for model in bench.size.grid_models:
        for arch in ARCHS:
            role = arch if model == bench.size.largest else roles[arch, model]
            label = f"{ARCH_NAMES[arch]} {bench.size.short_name(model)}"
            points = [
                (
                    bench.size.job(Point(arch, model, context, budget)).tokens / unit,
                    found[Point(arch, model, context, budget)][name],
                )
                for budget in BUDGETS
            ]
            lines.append(Series(label, role, points, square=arch == "gpt"))
    ticks = figures.ticks_at([x for line in lines for x, _ in line.points])
    return described(
        slug(name, context),
        f"{titles[name]}, context {bench.size.context_name(context)}",
        Axis(called, log=True, ticks=ticks),
        Axis("BLEU" if name == TRANSLATION else "accuracy, %"),
        lines,
    )


ITEM = Item(
    "tasks",
    "Figures 3, 8, 9 and 10",
    "Downstream tasks against the token budget",
    "accuracy on five tasks, their average, and translation, for the models of token-budget",
    token_budget.points,
    _make,
    tasks=True,
)
