"""The paper's downstream tasks on the models of runs, each measured only once."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from spherelm.errors import UserError
from spherelm.eval.tasks import ACCURACY, PAPER_TASKS, PaperTask, average_of
from spherelm.paper import tiny_tasks
from spherelm.paper.points import Point
from spherelm.paper.workbench import Workbench

NOT_SCORED = (
    "Accuracy was not measured: it needs the tasks' files (--tasks-dir) and "
    "lm-evaluation-harness (pip install 'spherelm[eval]')."
)


def available(bench: Workbench) -> bool:
    """Whether there are questions, and lm-evaluation-harness to ask them."""
    return (bench.tasks is not None or bench.size.built_in) and has_harness()


def has_harness() -> bool:
    """Whether lm-evaluation-harness is installed."""
    return importlib.util.find_spec("lm_eval") is not None


def source_of(bench: Workbench) -> str:
    """Where the questions come from."""
    return tiny_tasks.SOURCE if bench.tasks is None else str(bench.tasks.resolve())


def check(folder: Path | None) -> None:
    """Read all questions in a folder, so that mistakes show before any time is spent."""
    if folder is None:
        return
    if not folder.is_dir():
        raise UserError(f"--tasks-dir {folder} is not a folder")
    for task in PAPER_TASKS:
        task.read(folder)


def scores(
    bench: Workbench, point: Point, tasks: Sequence[PaperTask] = ACCURACY
) -> dict[str, float]:
    """A model's score in each task, in %: accuracy, or BLEU, which is already in %."""
    found = {}
    asked = _Asked(bench, point)
    with _questions(bench) as folder:
        for task in tasks:
            measure = partial(asked.measure, task, folder)
            source = source_of(bench), bench.tasks
            known = bench.measured(point, f"task-{task.name}", *source, measure)
            found[task.name] = known[task.metric] * (100 if task.metric == "acc" else 1)
    return found


def average(found: dict[str, float]) -> float:
    """The paper's average accuracy, over five tasks, in %."""
    average = average_of(found)
    assert average is not None
    return average


@dataclass(frozen=True)
class _Asked:
    """A model to ask, loaded on the first question."""

    bench: Workbench
    point: Point

    @cached_property
    def model(self) -> Any:
        from spherelm.eval.answers import Answers
        from spherelm.eval.harness import harness_model

        model, tokenizer, _ = self.bench.model(self.point)
        return harness_model(Answers(model, tokenizer))

    def measure(self, task: PaperTask, folder: Path) -> dict[str, Any]:
        from spherelm.eval.harness import evaluate_task

        score = evaluate_task(task, self.model, folder)
        return {"examples": score.examples, **score.metrics}


@contextlib.contextmanager
def _questions(bench: Workbench) -> Iterator[Path]:
    if bench.tasks is not None:
        yield bench.tasks
        return
    with tempfile.TemporaryDirectory(prefix="spherelm-tasks-") as scratch:
        yield tiny_tasks.write(Path(scratch))
