"""Train the runs of a grid: a queue shared by a few workers, each run its own `spherelm train`.

Finished runs are skipped, interrupted ones resume from their checkpoints, and a run's record is
written as soon as it ends, so an interruption affects only the runs under way. Two workers are
enough for one device: one compiles while the other trains. With no workers the runs are trained in
this process, one after another, which suits runs shorter than the start of a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from spherelm import durable, records
from spherelm.config import RunConfig
from spherelm.config_io import override, to_toml
from spherelm.console import counted, format_seconds
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.errors import UserError, some
from spherelm.model.flops import flops_per_token
from spherelm.paper import store
from spherelm.runs.run_dir import RunDir

POLL = 0.2
"""Seconds between checks on the processes."""
NEWS = 60.0
"""Seconds without the end of a run after which progress is printed."""
PRESET = "small"
"""The preset that the TOML of a run overrides: what our runs leave unset is unset there, too."""
_DIVERGED = 3
"""Exit status of a run whose loss is not finite, which counts as a result."""


@dataclass(frozen=True)
class Job:
    """One run: the name of its folder, and its whole configuration except the data."""

    id: str
    config: RunConfig

    @property
    def tokens(self) -> int:
        return self.config.tokens

    @property
    def flops(self) -> float:
        return self.tokens * flops_per_token(self.config.model)


@dataclass
class Runner:
    """A queue of runs, with the folders for their training and their records."""

    jobs: Sequence[Job]
    data: str | None
    """Folder of tokens; unset: the built-in corpus."""
    out: Path
    records: Path
    workers: int = 2
    """Processes at a time; 0: train in this process."""
    seconds: float | None = None
    """Start only runs that are expected to end within this time."""
    models: Collection[str] = ()
    """Runs that count as done only if their model is in `out`, whatever their record says."""
    say: Callable[[str], None] = print
    _active: dict[subprocess.Popen[bytes], Job] = field(default_factory=dict)
    _shares: dict[str, float] = field(default_factory=dict)
    """For each run under way, the share of it that was trained before this process started it."""

    def run(self) -> int:
        """Train the runs that are not done; returns how many are left, because time ran out or
        they were stopped. Raises an error that names the runs that failed.
        """
        queue = [job for job in self.jobs if not self.is_done(job)]
        keep_ended(self.jobs, self.out, self.records)
        if self.jobs:
            done = len(self.jobs) - len(queue)
            self.say(f"{done} of {counted(len(self.jobs), 'run')} done already")
        self._began = self._told = time.monotonic()
        self._done, self._stopped, failed = 0.0, 0, list[str]()
        with _terminable():
            try:
                while queue or self._active:
                    if queue and not self._active and not self._has_time(queue[0]):
                        self.say(f"out of time: {counted(len(queue), 'run')} left")
                        break
                    failed += self._turn(queue)
            except KeyboardInterrupt:
                self.say("stopping; the same command goes on from here")
                raise
            finally:
                self._stop()
        if failed:
            logs = some([self.out / f"{name}.log" for name in failed])
            raise UserError(f"{', '.join(failed)} failed; see {logs}")
        return len(queue) + self._stopped

    def is_done(self, job: Job) -> bool:
        """Whether the run has ended."""
        return has_ended(job, self.out, self.records, with_model=job.id in self.models)

    # --- runs ------------------------------------------------------------------------------------

    def _turn(self, queue: list[Job]) -> list[str]:
        """Start runs while there is room and time, and record those that have ended; returns the
        names of those that failed."""
        if not self.workers:
            job = queue.pop(0)
            return [] if self._ended(self._train_here(job), job, queue) else [job.id]
        while queue and len(self._active) < self.workers and self._has_time(queue[0]):
            self._start(queue.pop(0))
        time.sleep(POLL)
        failed = []
        for process in [p for p in self._active if p.poll() is not None]:
            job = self._active.pop(process)
            if not self._ended(process.returncode, job, queue):
                failed.append(job.id)
        if time.monotonic() - self._told > NEWS:
            self._tell(queue)
        return failed

    @cached_property
    def _dataset(self) -> TokenDataset:
        return open_dataset(self.data)

    def _start(self, job: Job) -> None:
        config = override(job.config, {"model.vocab_size": self._dataset.vocab_size})
        toml = self.out / f"{job.id}.toml"
        durable.write_text(toml, to_toml(config))
        command = [sys.executable, "-m", "spherelm.paper.child", str(os.getpid())]
        command += ["train", "--config", str(toml)]
        command += ["--preset", f"{config.model.arch}-{PRESET}", "--resume", "auto"]
        command += ["--out", str(self.out / job.id)]
        command += [] if self.data is None else ["--data", self.data]
        self._shares[job.id] = _share(job, self.out)
        with (self.out / f"{job.id}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._active[process] = job

    def _train_here(self, job: Job) -> int:
        """Train a run in this process; returns the exit status its own process would have had."""
        from spherelm.training.failures import Diverged
        from spherelm.training.loop import train

        dataset = self._dataset
        of_data = {"model.vocab_size": dataset.vocab_size, "data.path": self.data}
        self._shares[job.id] = _share(job, self.out)
        try:
            result = train(override(job.config, of_data), dataset, self.out / job.id, resume="auto")
        except Diverged:
            return _DIVERGED
        if not result.finished:  # a signal stopped it after it wrote a checkpoint
            raise KeyboardInterrupt
        return 0

    def _ended(self, status: int, job: Job, queue: Sequence[Job]) -> bool:
        """Record a run that has ended; returns False if it failed."""
        if status not in (0, _DIVERGED):
            self.say(f"{job.id}: failed with status {status}")
            return False
        share = _share(job, self.out)
        if status == 0 and share < 1:  # stopped by a signal that was not ours
            self._done += job.flops * (share - self._shares.pop(job.id))
            self._stopped += 1
            self.say(f"{job.id}: stopped at {share:.0%}, resumes from there next time")
            return True
        store.keep(self.out / job.id, self.records, job.id, diverged=status == _DIVERGED)
        self._done += job.flops * (1 - self._shares.pop(job.id))
        record = store.read_one(self.records / job.id)
        result = f"{record.loss:.4f}" if record.finished else "diverged"
        self.say(f"{job.id}: {result}; {self._outlook(queue)}")
        self._told = time.monotonic()
        return True

    def _stop(self) -> None:
        """Ask the active runs to stop; each writes a checkpoint to resume from."""
        for process in self._active:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._active:
            process.wait()
        self._active.clear()

    # --- time ------------------------------------------------------------------------------------

    def _has_time(self, job: Job) -> bool:
        if self.seconds is None:
            return True
        elapsed = time.monotonic() - self._began
        if not self._done:
            return elapsed < self.seconds
        return elapsed + self._left([job]) / self._speed() <= self.seconds

    def _under_way(self) -> float:
        """FLOPs that the runs under way have done since this process started them."""
        return sum(
            job.flops * max(0.0, _share(job, self.out) - self._shares[job.id])
            for job in self._active.values()
        )

    def _speed(self) -> float:
        """FLOPs a second so far."""
        done = self._done + self._under_way()
        return max(done, 1.0) / max(time.monotonic() - self._began, 1e-9)

    def _left(self, queue: Sequence[Job]) -> float:
        """FLOPs of the queued runs and of what is left of those under way."""
        started = sum(job.flops * (1 - self._shares[job.id]) for job in self._active.values())
        return sum(job.flops for job in queue) + started - self._under_way()

    def _outlook(self, queue: Sequence[Job]) -> str:
        seconds = self._left(queue) / self._speed()
        left = counted(len(queue) + len(self._active), "run")
        return f"{left} left, about {format_seconds(seconds)}"

    def _tell(self, queue: Sequence[Job]) -> None:
        """Print the progress of the runs under way, and the time left for all."""
        shares = {job.id: _share(job, self.out) for job in self._active.values()}
        under_way = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        self.say(f"under way: {under_way}; {self._outlook(queue)}")
        self._told = time.monotonic()


def has_ended(job: Job, runs: Path, records: Path, *, with_model: bool) -> bool:
    """Whether a run has ended, in a queue or in a `spherelm train` started by hand.

    With `with_model` a record is not enough: the model must be in `runs`, unless the run diverged
    and so has none.
    """
    checkpoints = RunDir(runs / job.id).checkpoints
    trained = (checkpoints / f"step_{job.config.train.steps}").is_dir()
    if store.has_end(records, job.id):
        return trained or not with_model or not store.has(records, job.id)
    return trained and _share(job, runs) == 1


def keep_ended(jobs: Sequence[Job], runs: Path, records: Path) -> None:
    """Write the records of runs that ended outside a queue, which would have written them."""
    for job in jobs:
        if not store.has_end(records, job.id) and has_ended(job, runs, records, with_model=False):
            store.keep(runs / job.id, records, job.id)


def _share(job: Job, runs: Path) -> float:
    """The share of its steps that a run in `runs` has taken; 0 if its metrics cannot be read."""
    metrics = RunDir(runs / job.id).metrics
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().splitlines()
        return float(records.parse(lines[-1], metrics)["step"]) / job.config.train.steps
    except (OSError, IndexError, KeyError, UserError):  # not begun, or a line is half written
        return 0.0


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the grid as Ctrl-C does, after the active runs write their checkpoints."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
