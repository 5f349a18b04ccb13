"""What a run writes down at each step: metrics.jsonl, speed.jsonl, trackers and the screen.

Only the main process has one that writes; the others' is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spherelm.config import RunConfig
from spherelm.runs.run_dir import RunDir
from spherelm.train.metrics import JsonLines
from spherelm.train.report.reporter import Moment, Reporter
from spherelm.train.report.stopwatch import RunningMean
from spherelm.train.report.trackers import Tracker, open_trackers


class Recorder:
    """Keeps the records of a run from `first_step` on."""

    def __init__(
        self,
        run: RunConfig,
        run_dir: RunDir,
        began: int,
        first_step: int,
        reporter: Reporter,
        writes: bool,
    ) -> None:
        """`began` is the step that the run set out from: 0, or that of an imported model."""
        self.run, self.reporter, self.writes = run, reporter, writes
        self._speed = RunningMean()
        self._trackers: list[Tracker] = []
        if writes:
            self._metrics_file = JsonLines(run_dir.metrics, began + 1, first_step)
            self._speed_file = JsonLines(run_dir.speed, began + 1, first_step)
            for file in (self._metrics_file, self._speed_file):
                if file.lost is not None:
                    reporter.note(f"{file.path}: {file.lost}, and cannot be written again")
            self._trackers = open_trackers(run, run_dir.tensorboard, first_step)
        reporter.started(run_dir.root.name, first_step, run.train.steps)

    def record(
        self, metrics: Mapping[str, Any], speed: Mapping[str, Any], val_loss: float | None
    ) -> None:
        """Write down one step."""
        if not self.writes:
            return
        self._metrics_file.write(metrics)
        self._speed_file.write(speed)
        for tracker in self._trackers:
            tracker.log(metrics)
        moment = Moment(
            step=metrics["step"],
            steps=self.run.train.steps,
            tokens=metrics["tokens"],
            loss=metrics["loss"],
            lr=metrics["lr"],
            grad_norm=metrics["grad_norm"],
            tokens_per_second=self._speed.update(speed["tokens_per_second"]),
            val_loss=val_loss,
        )
        self.reporter.stepped(moment)

    def sync(self) -> None:
        """Force all lines to the disk: before a checkpoint that counts on them gets its name."""
        if self.writes:
            self._metrics_file.sync()
            self._speed_file.sync()

    def close(self) -> None:
        """End the display and close all files."""
        self.reporter.finished()
        for tracker in self._trackers:
            tracker.close()
        if self.writes:
            self._metrics_file.close()
            self._speed_file.close()
