"""The paper's downstream tasks on the models of runs, each measured only once."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
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
    from spherelm.eval.answers import Answers
    from spherelm.eval.harness import evaluate_task, harness_model

    @functools.cache
    def model() -> Any:  # loaded only if a question was not asked before
        model, tokenizer, _ = bench.model(point)
        return harness_model(Answers(model, tokenizer))

    def measure(task: PaperTask, folder: Path) -> dict[str, Any]:
        score = evaluate_task(task, model(), folder)
        return {"examples": score.examples, **score.metrics}

    found = {}
    source = source_of(bench), bench.tasks
    with _questions(bench) as folder:
        for task in tasks:
            ask = partial(measure, task, folder)
            known = bench.measured(point, f"task-{task.name}", *source, ask)
            found[task.name] = known[task.metric] * (100 if task.metric == "acc" else 1)
    return found


def average(found: dict[str, float]) -> float:
    """The paper's average accuracy, over five tasks, in %."""
    average = average_of(found)
    assert average is not None
    return average


@contextlib.contextmanager
def _questions(bench: Workbench) -> Iterator[Path]:
    if bench.tasks is not None:
        yield bench.tasks
        return
    with tempfile.TemporaryDirectory(prefix="spherelm-tasks-") as scratch:
        yield tiny_tasks.write(Path(scratch))
