"""`spherelm report`: how one or more runs went, on one page; also while they are running."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from spherelm.cli.saved_model import check_runs
from spherelm.console import show
from spherelm.errors import UserError
from spherelm.flags import parse
from spherelm.validate import FromZero, check_fields


@dataclass(frozen=True)
class ReportFlags:
    """One self-contained page about runs: loss over tokens and time, learning rate, gradient norm,
    learned factors, and how their configurations differ.

        spherelm report runs/a runs/b --out report
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories; runs may still be in progress."""
    out: str
    """The folder for report.html; a report already there is replaced."""
    sample_tokens: FromZero = 200
    """Length in tokens of a sample from each run's newest checkpoint, generated on the CPU, at
    most its context; 0 for none."""
    json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        check_fields(self, "--")


def main(argv: list[str]) -> int:
    flags = parse(ReportFlags, argv, "report")
    check_runs("report", flags.runs, "run")

    from spherelm import durable
    from spherelm.folders import kinds, place
    from spherelm.training.report.history import read_history
    from spherelm.training.report.history_charts import MOST_RUNS
    from spherelm.training.report.history_page import render
    from spherelm.training.report.samples import sample_of_run

    if len(flags.runs) > MOST_RUNS:
        raise UserError(f"one page takes at most {MOST_RUNS} runs, not {len(flags.runs)}")
    place.check_apart(flags.out, flags.runs)
    place.check_own(flags.out, kinds.REPORT)  # before spending time on reading the runs
    runs = [read_history(folder) for folder in flags.runs]
    if not any(run.metrics for run in runs):
        raise UserError(f"{' and '.join(flags.runs)} has no steps yet; try again when it has some")
    file = Path(flags.out) / "report.html"
    with place.results(flags.out, kinds.REPORT, inputs=flags.runs):
        samples = {}
        for run in runs if flags.sample_tokens else ():
            print(f"{run.folder} writes at most {flags.sample_tokens} tokens", file=sys.stderr)
            samples[run.folder] = sample_of_run(run.folder, flags.sample_tokens)
        durable.write_text(file, render(runs, samples))
    result = {
        "report": str(file),
        "runs": {
            run.folder: {"step": run.step, "tokens": run.tokens, "loss": run.loss} for run in runs
        },
    }
    return show(result, flags.json, lambda: print(f"wrote {file}"))
