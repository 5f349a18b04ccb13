"""`spherelm eval tasks`: the paper's downstream tasks through lm-evaluation-harness."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spherelm import durable
from spherelm.cli.saved_model import ModelFlags, parse_for_model
from spherelm.console import print_table, show

if TYPE_CHECKING:
    import torch

    from spherelm.eval.harness import TaskScore
    from spherelm.eval.journal import Journal
    from spherelm.eval.tasks import PaperTask
    from spherelm.saved import Saved


@dataclass(frozen=True, kw_only=True)
class TaskFlags(ModelFlags):
    """ARC-Easy, HellaSwag, WinoGrande, WSC273, LAMBADA, their average, and WMT14 fr-en.

    Prompts and metrics are those of lm-evaluation-harness.
    """

    tasks: str = "paper"
    """Tasks divided by commas, such as lambada_openai,wsc273; paper means all six."""
    data: str | None = None
    """A folder with the tasks' files. Unset: from the Hugging Face hub."""
    limit: int | None = None
    """Examples of each task at most; for a quick look, not for results."""
    batch_size: int = 16
    """Questions answered together."""
    out: str | None = None
    """A folder for tasks.json and the answers so far: run again to continue where it stopped."""


def main(argv: list[str]) -> int:
    flags = parse_for_model(TaskFlags, argv, "eval tasks")

    from spherelm.eval.tasks import choose_tasks

    tasks = choose_tasks(flags.tasks)
    data = None if flags.data is None else Path(flags.data)

    from spherelm.folders import kinds, place

    with place.results(flags.out, kinds.EVAL, inputs=[flags.run, flags.data]):
        _check_questions(flags, tasks, data)
        scores, environment = _measure(flags, tasks, data)

        from spherelm.eval.harness import average_accuracy

        average = average_accuracy(scores)
        report: dict[str, Any] = {
            "run": flags.run,
            "limit": flags.limit,
            "tasks": {
                s.task.name: {"examples": s.examples, "shots": s.task.shots, **s.metrics}
                for s in scores
            },
            "average_accuracy": average,
            "environment": environment,
        }
        if flags.out is not None:
            durable.write_json(Path(flags.out) / "tasks.json", report)
    return show(report, flags.json, lambda: _print(flags.run, scores, average))


def _check_questions(flags: TaskFlags, tasks: tuple[PaperTask, ...], data: Path | None) -> None:
    """Find the model and read every question before the first minute is spent on answers."""
    from spherelm.saved import find_saved

    if data is not None:
        for task in tasks:
            task.read(data)
    find_saved(flags.run)
    if data is None:
        from spherelm.eval.harness import load_task

        for task in tasks:
            load_task(task)


def _measure(
    flags: TaskFlags, tasks: tuple[PaperTask, ...], data: Path | None
) -> tuple[list[TaskScore], dict[str, Any]]:
    """The scores, and what it takes to measure them again: versions, precision, batches."""
    from spherelm.bench.report import environment
    from spherelm.eval.harness import Answers, evaluate_task, harness_model
    from spherelm.saved import find_tokenizer, read_weights, reading, to_device

    device, dtype = flags.execution()
    saved, tokenizer, model, journal = reading(
        flags.run,
        lambda saved: (
            saved,
            find_tokenizer(saved, flags.tokenizer),
            to_device(read_weights(saved), device).eval(),
            _journal(flags.out, saved, dtype),
        ),
    )
    lm = harness_model(Answers(model, tokenizer, flags.batch_size, dtype, journal))
    scores = []
    try:
        for task in tasks:
            score = evaluate_task(task, lm, data, flags.limit)
            scores.append(score)
            shown = f"{score.task.metric} {score.value:.4f}"
            print(f"{task.title}: {shown} on {score.examples:,}", file=sys.stderr)
    finally:
        journal.close()
    return scores, {
        "checkpoint": saved.folder.name,
        "dtype": str(dtype).removeprefix("torch."),
        "batch_size": flags.batch_size,
        "lm_eval": version("lm_eval"),
        **environment(device),
    }


def _journal(out: str | None, saved: Saved, dtype: torch.dtype) -> Journal:
    from spherelm.eval.journal import Journal

    if out is None:
        return Journal()
    weights = "manifest.json" if saved.kind == "checkpoint" else "model.safetensors"
    identity = f"{saved.folder.name} {durable.checksum(saved.folder / weights)} {dtype}"
    return Journal(Path(out) / "answers.jsonl", identity)


def _print(run: str, scores: list[TaskScore], average: float | None) -> None:
    rows = []
    for score in scores:
        for metric, value in score.metrics.items():
            if not metric.endswith("_stderr"):
                error = score.metrics.get(f"{metric}_stderr")
                shown = f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")
                examples = f"{score.examples:,}"
                rows.append((score.task.title, str(score.task.shots), examples, metric, shown))
    if average is not None:
        rows.append(("average of five", "", "", "acc", f"{average:.4f}"))
    print_table(run, rows, ("task", "shots", "examples", "metric", "value"), words=["metric"])
