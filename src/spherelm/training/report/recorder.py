"""What a run records at each step: metrics.jsonl, speed.jsonl, trackers and the screen.

Only the main process's recorder writes; the others have no files, and a silent reporter.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from spherelm import durable, records
from spherelm.errors import or_say
from spherelm.model.block import NGPTBlock
from spherelm.model.scale import Scale
from spherelm.model.sphere import largest_norm_deviation
from spherelm.model.transformer import Transformer
from spherelm.runs.metrics import kept_lines, read_lines, what_is_wrong
from spherelm.runs.run_dir import RunDir
from spherelm.runs.state import TrainState
from spherelm.training.report.reporter import Moment, Reporter
from spherelm.training.report.trackers import Tracker, open_trackers


class StepFile:
    """A file with one sealed line per step; only appended to during a run."""

    def __init__(self, path: Path, first: int, last: int) -> None:
        """Open `path` to continue after step `last`; lines from `first` to there are kept."""
        self.path = path
        lines = read_lines(path)
        self.lost = what_is_wrong(lines, first, last)
        """What was wrong with the lines to be kept, if anything."""
        durable.write_bytes(path, b"".join(kept_lines(lines, first, last)))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run

    def write(self, record: Mapping[str, Any]) -> None:
        with or_say(f"cannot write {self.path}"):
            self._file.write(records.line(record))
            self._file.flush()

    def sync(self) -> None:
        """Force what was written to the disk."""
        with or_say(f"cannot write {self.path}"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. If the disk is full, the buffered lines are tried once more, and fail."""
        with or_say(f"cannot write {self.path}"):
            self._file.close()


class Stopwatch:
    """Seconds of each step, without evaluations and checkpoints, during which it is paused."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        seconds, self._start = now - self._start, now
        return max(seconds, 1e-9)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time inside the `with` block."""
        began = time.perf_counter()
        yield
        self._start += time.perf_counter() - began


class RunningMean:
    """An exponential moving average; each new value has a weight of 0.1."""

    def __init__(self) -> None:
        self._mean: float | None = None

    def update(self, value: float) -> float:
        self._mean = value if self._mean is None else 0.9 * self._mean + 0.1 * value
        return self._mean


@torch.no_grad()
def sphere_metrics(
    model: Transformer, gather: Callable[[float], list[float]] = lambda mine: [mine]
) -> dict[str, Any]:
    """Mean of every alpha and scale per layer, and how far any row is from unit norm (nGPT)."""
    if model.s_z is None:
        return {}
    means: dict[str, list[float]] = {}
    for block in model.blocks:
        assert isinstance(block, NGPTBlock)
        alpha_A, alpha_M = block.eigen_learning_rates()
        factors = {"alpha_attn": alpha_A, "alpha_mlp": alpha_M}
        for owner, name in ((block.attention, "s_qk"), (block.mlp, "s_u"), (block.mlp, "s_nu")):
            # The class's forward: under tensor parallelism, the module's own reads only a share.
            factors[name] = Scale.forward(getattr(owner, name))
        for name, values in factors.items():
            means.setdefault(name, []).append(round(float(values.mean()), 6))
    return {
        **means,
        "s_z": round(float(model.s_z().mean()), 6),
        "largest_norm_deviation": max(gather(largest_norm_deviation(model))),
    }


class Recorder:
    """Keeps the records of a run, starting from the step of its state."""

    def __init__(
        self, state: TrainState, run_dir: RunDir, reporter: Reporter, what: str, writes: bool
    ) -> None:
        """`what` describes the model and the devices, for people to read."""
        self.steps, self.reporter = state.run.train.steps, reporter
        self._speed = RunningMean()
        self._files: list[StepFile] = []
        self._trackers: list[Tracker] = []
        if writes:
            self._files = [
                StepFile(path, state.began + 1, state.step)
                for path in (run_dir.metrics, run_dir.speed)
            ]
            for file in self._files:
                if file.lost is not None:
                    reporter.note(f"{file.path}: {file.lost}, and cannot be written again")
            self._trackers = open_trackers(state.run, run_dir.tensorboard, state.step)
        reporter.started(run_dir.root.name, what, state.step, self.steps)

    def record(
        self, metrics: Mapping[str, Any], speed: Mapping[str, Any], val_loss: float | None
    ) -> None:
        """Write down one step; `val_loss` is the newest validation loss."""
        for file, line in zip(self._files, (metrics, speed), strict=False):  # maybe no files
            file.write(line)
        for tracker in self._trackers:
            tracker.log(metrics)
        self.reporter.stepped(
            Moment(
                steps=self.steps,
                tokens_per_second=self._speed.update(speed["tokens_per_second"]),
                val_loss=val_loss,
                **{name: metrics[name] for name in ("step", "tokens", "loss", "lr", "grad_norm")},
            )
        )
        if "val_loss" in metrics:
            bits = metrics.get("val_bits_per_byte")
            self.reporter.evaluated(metrics["step"], metrics["val_loss"], bits)

    def sync(self) -> None:
        """Force all lines to the disk, before a checkpoint that relies on them gets its name."""
        for file in self._files:
            file.sync()

    def close(self) -> None:
        """End the display and close all files and trackers, even if closing one of them fails."""
        with contextlib.ExitStack() as others:
            for each in (*self._files, *self._trackers):
                others.callback(each.close)
            self.reporter.finished()
