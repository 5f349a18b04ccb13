"""`spherelm eval tasks`: the paper's downstream tasks through lm-evaluation-harness."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from spherelm import durable
from spherelm.cli.saved_model import ModelsFlags, check_runs, parse_for_model
from spherelm.console import print_table, show

if TYPE_CHECKING:
    import torch

    from spherelm.eval.harness import TaskScore
    from spherelm.eval.journal import Journal
    from spherelm.eval.tasks import PaperTask
    from spherelm.saved import Saved


@dataclass(frozen=True, kw_only=True)
class TaskFlags(ModelsFlags):
    """ARC-Easy, HellaSwag, WinoGrande, WSC273, LAMBADA, their average, and WMT14 fr-en, for one
    model or several in one table.

    Prompts and metrics are those of lm-evaluation-harness.

        spherelm eval tasks runs/gpt runs/ngpt --tasks paper --out scores
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories (their newest checkpoints), checkpoints, or exported folders."""
    tasks: str = "paper"
    """Tasks separated by commas, such as lambada_openai,wsc273; paper means all six."""
    data: str | None = None
    """A folder with the tasks' files. Unset: from the Hugging Face hub."""
    limit: int | None = None
    """Use at most this many examples of each task: for a quick look, not for results."""
    batch_size: int = 16
    """Questions answered together."""
    out: str | None = None
    """A folder for tasks.json and the answers so far: run it again to continue where it stopped."""


def main(argv: list[str]) -> int:
    flags = parse_for_model(TaskFlags, argv, "eval tasks")
    check_runs("eval tasks", flags.runs)

    from spherelm.eval.tasks import choose_tasks

    tasks = choose_tasks(flags.tasks)
    data = None if flags.data is None else Path(flags.data)

    from spherelm.folders import kinds, place

    with place.results(flags.out, kinds.EVAL, inputs=[*flags.runs, flags.data]):
        _check_questions(flags, tasks, data)
        measured = {run: _measure(run, flags, tasks, data) for run in flags.runs}
        report = {
            "limit": flags.limit,
            "models": [_report(run, *found) for run, found in measured.items()],
        }
        if flags.out is not None:
            durable.write_json(Path(flags.out) / "tasks.json", report)
    scores = {run: found for run, (found, _) in measured.items()}
    return show(report, flags.json, lambda: _print(scores))


def _report(run: str, scores: list[TaskScore], environment: dict[str, Any]) -> dict[str, Any]:
    from spherelm.eval.harness import average_accuracy

    return {
        "run": run,
        "tasks": {
            s.task.name: {"examples": s.examples, "shots": s.task.shots, **s.metrics}
            for s in scores
        },
        "average_accuracy": average_accuracy(scores),
        "environment": environment,
    }


def _check_questions(flags: TaskFlags, tasks: tuple[PaperTask, ...], data: Path | None) -> None:
    """Find all models and read all questions, so that mistakes show before any answering begins."""
    from spherelm.saved import find_saved, find_tokenizer

    if data is not None:
        for task in tasks:
            task.read(data)
    for run in flags.runs:
        find_tokenizer(find_saved(run), flags.tokenizer)
    if data is None:
        from spherelm.eval.harness import load_task

        for task in tasks:
            load_task(task)


def _measure(
    run: str, flags: TaskFlags, tasks: tuple[PaperTask, ...], data: Path | None
) -> tuple[list[TaskScore], dict[str, Any]]:
    """The scores, and what is needed to reproduce them: versions, precision, batch size."""
    from spherelm.bench.report import environment
    from spherelm.eval.answers import Answers
    from spherelm.eval.harness import evaluate_task, harness_model
    from spherelm.saved import find_tokenizer, read_weights, reading, to_device

    device, dtype = flags.execution()
    saved, tokenizer, model, journal = reading(
        run,
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
            print(f"{run}: {task.title}: {shown} on {score.examples:,}", file=sys.stderr)
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
    from spherelm.saved import checksum_of

    if out is None:
        return Journal()
    identity = f"{saved.folder.name} {checksum_of(saved.folder)} {dtype}"
    return Journal(Path(out) / "answers.jsonl", identity)


def _print(scores: dict[str, list[TaskScore]]) -> None:
    """Print a row per model and a column per metric of each task, with standard errors."""
    from spherelm.eval.harness import average_accuracy

    any_run = next(iter(scores.values()))
    head = ["model"]
    for score in any_run:
        names = [name for name in score.metrics if not name.endswith("_stderr")]
        head += [f"{score.task.title} {name}" for name in names]
    rows = []
    for run, found in scores.items():
        cells = [_cell(score, name) for score in found for name in score.metrics]
        rows.append([run, *filter(None, cells)])
    averages = [average_accuracy(found) for found in scores.values()]
    if None not in averages:
        head.append("average of five")
        rows = [[*row, f"{average:.4f}"] for row, average in zip(rows, averages, strict=True)]
    shots = {score.task.title: score.task.shots for score in any_run if score.task.shots}
    examples = ", ".join(f"{score.task.title} {score.examples:,}" for score in any_run)
    note = "".join(f"; {n} shots in {title}" for title, n in shots.items())
    print_table(None, rows, head, caption=f"examples: {examples}{note}")


def _cell(score: TaskScore, metric: str) -> str:
    """The value with its standard error; empty if `metric` is itself a standard error."""
    if metric.endswith("_stderr"):
        return ""
    error = score.metrics.get(f"{metric}_stderr")
    return f"{score.metrics[metric]:.4f}" + ("" if error is None else f" ± {error:.4f}")
