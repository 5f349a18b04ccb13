"""The records of a run so far, read for a report: its progress and its curves."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spherelm import records
from spherelm.config import RunConfig
from spherelm.data.tokenizer import Tokenizer, same_ids
from spherelm.data.tokenizer_load import load_saved_tokenizer
from spherelm.errors import UserError, no_folder, some
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir, runs_in

Points = list[tuple[float, float]]
MOST_POINTS = 100
"""The most points of a curve, so that it shows the trend and not every step's noise."""
RECENT = 50
"""How many of the last steps count for the current training loss and speed."""


@dataclass(frozen=True)
class History:
    """A run so far."""

    folder: str
    """As the user gave it."""
    config: RunConfig
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    """The lines of metrics.jsonl."""
    seconds: dict[int, float]
    """How long each step took."""
    tokenizer: Tokenizer | None = None
    """The run's own; None if it has none that can be read."""

    @property
    def step(self) -> int:
        """The last recorded step."""
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    @property
    def tokens(self) -> int:
        return int(self.metrics[-1]["tokens"]) if self.metrics else 0

    @property
    def finished(self) -> bool:
        return self.step >= self.config.train.steps

    @cached_property
    def clock(self) -> dict[int, float]:
        """Seconds of training up to each step, without evaluations and checkpoints.

        A step of unknown time counts as the median; empty if no time is known.
        """
        if not self.seconds:
            return {}
        usual, total, clock = statistics.median(self.seconds.values()), 0.0, {}
        for line in self.metrics:
            total += self.seconds.get(line["step"], usual)
            clock[line["step"]] = total
        return clock

    @property
    def loss(self) -> float | None:
        """The mean training loss of the last steps."""
        losses = [line["loss"] for line in self.metrics[-RECENT:]]
        return statistics.fmean(losses) if losses else None

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of the last steps."""
        recent = list(self.seconds.values())[-RECENT:]
        return self.config.tokens_per_step / statistics.median(recent) if recent else None

    def curve(
        self, name: str, x: Callable[[dict[str, Any]], float], most: int = MOST_POINTS
    ) -> Points:
        """A field of the metrics over `x`, as the means of at most `most` parts of the run."""
        return [
            (x(part[-1]), statistics.fmean(_mean(line[name]) for line in part))
            for part in self._parts(name, most)
        ]

    def spread(
        self, name: str, x: Callable[[dict[str, Any]], float], most: int = MOST_POINTS
    ) -> list[tuple[float, float, float]]:
        """The lowest and the highest layer in the same parts; empty if the field has no layers."""
        return [
            (x(part[-1]), min(map(min, values)), max(map(max, values)))
            for part in self._parts(name, most)
            if isinstance(part[0][name], list) and (values := [line[name] for line in part])
        ]

    def _parts(self, name: str, most: int) -> list[list[dict[str, Any]]]:
        """The lines that have this field, in at most `most` equal parts."""
        there = [line for line in self.metrics if line.get(name) is not None]
        size = -(-len(there) // most) or 1
        return [there[first : first + size] for first in range(0, len(there), size)]


def _mean(value: float | Sequence[float]) -> float:
    """A number, or the mean over layers."""
    return float(value) if isinstance(value, (int, float)) else statistics.fmean(value)


def read_history(folder: str) -> History:
    """The run in `folder` so far; a line that is just being written is ignored."""
    run_dir = RunDir(Path(folder))
    if not run_dir.root.is_dir():
        raise UserError(f"{no_folder(run_dir.root)}; give run directories")
    if not run_dir.holds_a_run():
        found = runs_in(run_dir.root)
        instead = f"runs in it: {some(found)}" if found else "run directories"
        raise UserError(f"{folder} holds no run (config.toml); give {instead}")
    config = run_dir.read_config()
    environment = records.read(run_dir.env) if run_dir.env.is_file() else {}
    metrics = read_metrics(run_dir.metrics)
    for name in ("tokens", "loss", "lr", "grad_norm"):
        for line in metrics:
            records.field(line, name, (int, float), run_dir.metrics)
    speed = read_metrics(run_dir.speed)
    times = {
        line["step"]: float(records.field(line, "seconds", (int, float), run_dir.speed))
        for line in speed
    }
    tokenizer = None
    with contextlib.suppress(UserError):  # a report can do without it
        tokenizer = load_saved_tokenizer(run_dir.tokenizer)
    return History(folder, config, environment, metrics, times, tokenizer)


def are_of_one_tokenizer(runs: Sequence[History]) -> bool:
    """Whether all `runs` have the same tokenizer, as far as is known."""
    known = [run.tokenizer for run in runs if run.tokenizer is not None]
    return all(same_ids(known[0], other) for other in known[1:])
