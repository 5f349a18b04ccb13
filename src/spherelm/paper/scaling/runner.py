"""Train the runs of a grid: a few processes on one queue, each run a `spherelm train` of its own.

What is done is skipped, what was stopped goes on from its checkpoint, and the record of a run is
written as soon as it ends: whatever interrupts the study costs at most the runs under way. Two
workers are enough for one device: the one compiles while the other trains.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spherelm import durable
from spherelm.config_io import override, to_toml
from spherelm.data.open import open_dataset
from spherelm.errors import UserError
from spherelm.paper.scaling import store
from spherelm.paper.scaling.grid import TOKENS_PER_STEP, Point, rehearsed, tokens_of

POLL = 0.2
"""Seconds between looks at the processes."""
_DIVERGED = 3
"""Exit status of a run whose loss is not finite: a result, too."""


@dataclass
class Study:
    """A queue of runs, where they are trained and where their records go."""

    points: Sequence[Point]
    data: str | None
    """Folder of tokens; unset: the built-in corpus."""
    out: Path
    records: Path
    workers: int = 2
    seconds: float | None = None
    """No run is started that is not expected to end by then."""
    rehearse: bool = False
    say: Callable[[str], None] = print
    _active: dict[subprocess.Popen[bytes], Point] = field(default_factory=dict)

    def run(self) -> None:
        """Train what is not done yet; an error names the runs that failed."""
        queue = [point for point in self.points if not store.has(self.records, point.id)]
        self.say(f"{len(self.points) - len(queue)} of {len(self.points)} runs are done already")
        self._vocab_size = open_dataset(self.data).vocab_size
        self._began, self._done, failed = time.monotonic(), 0, list[str]()
        try:
            while queue or self._active:
                while queue and len(self._active) < self.workers and self._has_time(queue[0]):
                    self._start(queue.pop(0))
                if queue and not self._active:
                    self.say(f"out of time: {len(queue)} runs are left")
                    break
                time.sleep(POLL)
                for process in [p for p in self._active if p.poll() is not None]:
                    point = self._active.pop(process)
                    if not self._ended(process.returncode, point, [*queue]):
                        failed.append(point.id)
        finally:
            self._stop()
        if failed:
            raise UserError(f"{', '.join(failed)} failed; see {self.out}/ID.log")

    def _has_time(self, point: Point) -> bool:
        if self.seconds is None or not self._done:
            return self.seconds is None or time.monotonic() - self._began < self.seconds
        ahead = (tokens_of([*self._active.values()]) / 2 + tokens_of([point])) / self._speed()
        return time.monotonic() - self._began + ahead <= self.seconds

    def _speed(self) -> float:
        """Tokens a second so far; runs under way count half, which they have done on average."""
        under_way = tokens_of([*self._active.values()]) / 2
        return (self._done + under_way) / (time.monotonic() - self._began)

    def _start(self, point: Point) -> None:
        config = rehearsed(point.config()) if self.rehearse else point.config()
        config = override(config, {"model.vocab_size": self._vocab_size})
        toml = self.out / f"{point.id}.toml"
        durable.write_text(toml, to_toml(config))
        command = [sys.executable, "-m", "spherelm", "train", "--config", str(toml)]
        command += ["--preset", f"{config.model.arch}-small", "--resume", "auto"]
        command += ["--out", str(self.out / point.id)]
        command += [] if self.data is None else ["--data", self.data]
        with (self.out / f"{point.id}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._active[process] = point

    def _ended(self, status: int, point: Point, left: Sequence[Point]) -> bool:
        """Keep the record of a run that has ended; whether it ended as it should."""
        if status not in (0, _DIVERGED):
            self.say(f"{point.id}: failed with status {status}")
            return False
        store.keep(self.out / point.id, self.records, point.id)
        self._done += point.steps * TOKENS_PER_STEP
        (record,) = (r for r in store.read(self.records) if r.id == point.id)
        result = f"{record.loss:.4f}" if record.finished else "diverged"
        rest = tokens_of(left) + tokens_of([*self._active.values()]) / 2
        self.say(
            f"{point.id}: {result}; {len(left) + len(self._active)} runs left, "
            f"about {rest / self._speed():.0f} s"
        )
        return True

    def _stop(self) -> None:
        """Ask what still runs to end: each writes a checkpoint, to go on from next time."""
        for process in self._active:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._active:
            process.wait()
