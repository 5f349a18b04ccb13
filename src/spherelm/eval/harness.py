"""Tasks of lm-evaluation-harness on a spherelm model, with its own prompts and metrics.

The harness asks for the log-likelihood of a continuation, or for text until a stop string; see
`answers`. Tokens are truncated and joined exactly as the harness does for a Hugging Face model, so
that `lm_eval --model hf` on the exported folder gives the same numbers.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spherelm.data import hub
from spherelm.errors import UserError
from spherelm.eval.answers import Answers
from spherelm.eval.tasks import NO_HARNESS, PaperTask, average_of

FEWSHOT_SEED = 1234
"""The harness's own seed for the choice of examples."""


@dataclass(frozen=True)
class TaskScore:
    """What the harness measured on one task."""

    task: PaperTask
    examples: int
    metrics: dict[str, float]

    @property
    def value(self) -> float:
        """The task's own metric."""
        return self.metrics[self.task.metric]


def average_accuracy(scores: Sequence[TaskScore]) -> float | None:
    """The mean accuracy of the paper's five tasks; None unless all of them were measured."""
    return average_of({score.task.name: score.value for score in scores})


def evaluate_task(
    task: PaperTask, model: Any, data: Path | None = None, limit: int | None = None
) -> TaskScore:
    """Measure one task; `model` is a `harness_model`, or any LM of the harness.

    Data comes from the files in `data` or, if that is None, from the hub.
    """
    lm_eval = _import_harness()
    loaded = load_task(task, data, limit)
    with _quiet_unless_terminal(), _templates_compiled_once(lm_eval):
        results = lm_eval.evaluate(
            lm=model, task_dict=loaded, limit=limit, bootstrap_iters=0, log_samples=False
        )
    measured = results["results"][task.name]
    metrics = {
        name.split(",")[0]: float(value)
        for name, value in measured.items()
        if isinstance(value, (int, float)) and "," in name and "stderr" not in name
    }
    examples = int(results["n-samples"][task.name]["effective"])
    if "acc" in metrics:
        metrics["acc_stderr"] = math.sqrt(metrics["acc"] * (1 - metrics["acc"]) / examples)
    return TaskScore(task, examples, metrics)


def load_task(task: PaperTask, data: Path | None = None, limit: int | None = None) -> Any:
    """A task with its questions; loading them from the hub may take a while."""
    lm_eval = _import_harness()
    # Only the task's own folder: indexing the harness's thousands of tasks takes seconds.
    folder = Path(lm_eval.__file__).parent / "tasks" / task.folder
    manager = lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False)
    spec: dict[str, Any] = {"task": task.name, "num_fewshot": task.shots}
    if data is not None:
        spec |= _local_source(task, data, limit)
    # Settings can be overridden only in a member of a group, not in a task by itself.
    group = [{"group": "spherelm", "task": [spec]}]
    if data is not None:
        loaded = manager.load(group)
    else:
        remedy = "give --data a folder with the tasks' files"
        refusal = f"cannot get {task.name} from the Hugging Face hub"
        with hub.asked(lambda why: f"{refusal} ({why}); {remedy}"), _quiet_unless_terminal():
            loaded = manager.load(group)
    loaded["tasks"][task.name].set_fewshot_seed(seed=FEWSHOT_SEED)
    return loaded


def _local_source(task: PaperTask, data: Path, limit: int | None) -> dict[str, Any]:
    """The changes that make the harness's task read from memory instead of from the hub."""
    import datasets

    datasets.disable_progress_bars()
    rows = task.read(data)
    tables = {task.split: datasets.Dataset.from_list(rows if task.shots else rows[:limit])}
    no_others = dict.fromkeys(("training_split", "validation_split", "test_split"))
    source = {"custom_dataset": lambda **_: tables, **no_others, f"{task.split}_split": task.split}
    if task.shots:  # examples come from the same split; the harness skips the question itself
        source["fewshot_split"] = task.split
    return source


def _import_harness() -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import lm_eval
        import lm_eval.tasks
    except ImportError:
        raise UserError(NO_HARNESS) from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return lm_eval


@contextlib.contextmanager
def _quiet_unless_terminal() -> Iterator[None]:
    """Hide the harness's progress bars on stderr unless that is a terminal."""
    if sys.stderr.isatty():
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


@contextlib.contextmanager
def _templates_compiled_once(lm_eval: Any) -> Iterator[None]:
    """Cache the compiled templates of a task, which the harness recompiles for every example.

    On 5,153 made-up texts in the form of LAMBADA, with a model that answers at once, 22 s become
    1.5 s (one CPU core).
    """
    environment: Any = getattr(lm_eval.utils, "env", None)  # jinja2's
    if not hasattr(environment, "compile") or "compile" in vars(environment):
        yield  # another version of the harness, or already cached
        return
    environment.compile = functools.lru_cache(maxsize=256)(environment.compile)
    try:
        yield
    finally:
        del environment.compile


def harness_model(answers: Answers) -> Any:
    """A model in the harness's form, an `lm_eval.api.model.LM`."""
    _import_harness()
    from lm_eval.api.model import TemplateLM

    class SpherelmLM(TemplateLM):  # type: ignore[misc]
        """Answers the harness's two kinds of questions; `TemplateLM` prepares their tokens."""

        eot_token_id = answers.tokenizer.end_of_document

        def tok_encode(self, string: str, **_: Any) -> list[int]:
            return answers.tokenizer.encode(string)

        def _loglikelihood_tokens(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
            return answers.loglikelihoods([(context, target) for _, context, target in requests])

        def loglikelihood_rolling(self, requests: Any, **_: Any) -> list[float]:
            return [answers.rolling(request.args[0]) for request in requests]

        def generate_until(self, requests: Any, **_: Any) -> list[str]:
            return answers.texts([request.args for request in requests])

    return SpherelmLM()
