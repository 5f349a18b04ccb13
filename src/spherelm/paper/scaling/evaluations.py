"""What `spherelm eval` found for runs of the study: tasks, other texts, length of context.

The folder data/evaluations of the results holds the output of these commands, unchanged:

    tasks.json, tasks-2.json, ...      spherelm eval tasks RUNS --json
    texts.json, texts-2.json, ...      spherelm eval RUNS --text TEXTS --json
    length.json, length-2.json, ...    spherelm eval length RUNS --books BOOKS --json

A run's folder has the name of its record. Measurements in a later file replace those in an earlier
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spherelm import records
from spherelm.console import format_context
from spherelm.errors import UserError
from spherelm.eval.tasks import ACCURACY, AVERAGED, average_of
from spherelm.paper.scaling import figures
from spherelm.paper.scaling.arms import ARMS, MAIN
from spherelm.paper.scaling.identity import Place, arm_of, variant_of
from spherelm.paper.scaling.words import LEAD, lead, number
from spherelm.paper.store import Record
from spherelm.plots import markdown
from spherelm.plots.chart import Axis, Chart, described

Entry = tuple[str, str | int, Any]
"""A run, what was measured of it, and the number."""
Entries = Iterator[Entry]
FOLDER = "evaluations"


@dataclass(frozen=True)
class Accuracy:
    """A share of right answers, and its standard error."""

    value: float
    error: float
    examples: int

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} ± {100 * self.error:.1f}"


@dataclass(frozen=True)
class Evaluated:
    """All evaluations of one run."""

    run: Record
    tasks: dict[str, Accuracy] = field(default_factory=dict)
    texts: dict[str, float] = field(default_factory=dict)
    """Bits per byte."""
    lengths: dict[int, float] = field(default_factory=dict)
    """Perplexity at each length."""

    @property
    def average(self) -> Accuracy | None:
        """The mean over the five tasks, if all were asked, with their errors independent."""
        value = average_of({name: found.value for name, found in self.tasks.items()})
        if value is None:
            return None
        of = [self.tasks[name] for name in AVERAGED]
        error = math.hypot(*(found.error for found in of)) / len(of)
        return Accuracy(value, error, sum(found.examples for found in of))


# --- the files -----------------------------------------------------------------------------------


def read(results: Path, known: Sequence[Record]) -> list[Evaluated]:
    """All runs that were evaluated, by model, context, tokens and arm."""
    found = {record.id: Evaluated(record) for record in known}
    for kind, (field_of, entries) in _KINDS.items():
        folder = results / "data" / FOLDER
        files = [*folder.glob(f"{kind}.json"), *folder.glob(f"{kind}-*.json")]
        for path in sorted(files, key=lambda path: (len(path.name), path.name)):
            for run, what, value in _entries(path, entries):
                getattr(_of(run, found), field_of)[what] = value
    order = list(ARMS)

    def rank(each: Evaluated) -> tuple[Any, ...]:
        run = each.run
        return Place.of(run.config).rank(), run.tokens, order.index(arm_of(run.config)), run.id

    return sorted((e for e in found.values() if e.tasks or e.texts or e.lengths), key=rank)


def _of(run: str, found: Mapping[str, Evaluated]) -> Evaluated:
    """Find a run, which may be named by its folder or by a checkpoint inside it."""
    for part in reversed(Path(run).parts):
        if part in found:
            return found[part]
    raise UserError(f"data/{FOLDER} has the run {run}, and data/scaling no record of that name")


def _entries(path: Path, entries: Callable[[Any], Entries]) -> list[Entry]:
    try:
        return list(entries(records.read(path)))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise records.damaged(path, "it is not what `spherelm eval` prints") from None


def _tasks(values: Any) -> Entries:
    for model in values["models"]:
        for name, of in model["tasks"].items():
            if name in AVERAGED:
                accuracy = Accuracy(of["acc"], of["acc_stderr"], of["examples"])
                yield model["run"], name, accuracy


def _texts(values: Any) -> Entries:
    for result in values["results"]:
        yield result["run"], result["text"], result["bits_per_byte"]


def _lengths(values: Any) -> Entries:
    for curve in values["curves"]:
        for length, perplexity in zip(curve["lengths"], curve["perplexities"], strict=True):
            yield curve["run"], length, perplexity


_KINDS = {"tasks": ("tasks", _tasks), "texts": ("texts", _texts), "length": ("lengths", _lengths)}
"""By the files' name: the field of `Evaluated` that they fill, and what reads them."""


# --- tables and pictures -------------------------------------------------------------------------


def task_table(evaluated: Sequence[Evaluated]) -> Iterator[str]:
    """The accuracy of the runs that were evaluated on tasks."""
    found = [each for each in evaluated if each.tasks]
    if not found:
        return
    asked = [task for task in ACCURACY if any(task.name in each.tasks for each in found)]
    counts = {
        task.title: max(e.tasks[task.name].examples for e in found if task.name in e.tasks)
        for task in asked
    }
    questions = ", ".join(f"{count:,} of {title}" for title, count in counts.items())
    yield f"Right answers in % and their standard errors, no examples in the prompt ({questions}):"
    head = (*LEAD, *(task.title for task in asked), "average of five")
    rows = [
        [
            *lead(each.run),
            *(str(each.tasks.get(task.name) or "-") for task in asked),
            str(each.average or "-"),
        ]
        for each in found
    ]
    yield markdown.table(head, rows)


def length_table(evaluated: Sequence[Evaluated]) -> Iterator[str]:
    """Perplexity by length of context, of the runs that have it."""
    found = [each for each in evaluated if each.lengths]
    if not found:
        return
    lengths = sorted({length for each in found for length in each.lengths})
    yield "Perplexity of whole books by the length of the context, the same tokens at each:"
    for chart in length_charts(found):
        yield from markdown.picture(chart.title, f"{chart.name}.svg")
    head = (*LEAD, *(f"{length:,}" for length in lengths))
    rows = [
        [*lead(each.run), *(number(each.lengths.get(length), ",.1f") for length in lengths)]
        for each in found
    ]
    yield markdown.table(head, rows)


def length_charts(found: Sequence[Evaluated]) -> list[Chart]:
    """For each model and training context, a chart with the longest run of each arm; among equally
    long ones, the one with the lowest final loss."""
    charts: dict[Place, dict[str, Evaluated]] = {}
    for each in sorted(found, key=lambda each: (each.run.tokens, -each.run.loss)):
        run = each.run.config
        arm = arm_of(run)
        ablated = variant_of(each.run.id) and arm in MAIN  # but nGPT without QK-norm is an arm
        if each.lengths and not ablated:
            charts.setdefault(Place.of(run), {})[arm] = each
    return [_length_chart(place, arms) for place, arms in charts.items()]


def _length_chart(place: Place, arms: Mapping[str, Evaluated]) -> Chart:
    what, name = figures.named(place)
    curves = {
        arm: [(n, value) for n, value in sorted(each.lengths.items()) if math.isfinite(value)]
        for arm, each in arms.items()
    }
    lengths = sorted({n for points in curves.values() for n, _ in points})
    return described(
        f"length-{name}",
        f"Perplexity by length, trained at {what}",
        Axis("tokens of context", log=True, ticks=[(n, format_context(n)) for n in lengths]),
        Axis("perplexity", log=True),
        figures.lines(curves),
    )
