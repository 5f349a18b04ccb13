"""What the user sees during a run: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from spherelm.console import format_count, format_seconds, open_console


@dataclass(frozen=True)
class Moment:
    """Where a run stands after a step."""

    step: int
    steps: int
    tokens: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_second: float
    val_loss: float | None = None
    """The newest validation loss."""

    @property
    def seconds_left(self) -> float:
        tokens_left = self.tokens / max(1, self.step) * (self.steps - self.step)
        return tokens_left / max(1e-9, self.tokens_per_second)


class Reporter:
    """Is told of every step, evaluation and checkpoint of a run; this one prints nothing."""

    def started(self, name: str, what: str, first_step: int, steps: int) -> None: ...
    def stepped(self, moment: Moment) -> None: ...
    def evaluated(self, step: int, loss: float, bits_per_byte: float | None) -> None: ...
    def saved(self, checkpoint: Path) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self) -> None: ...


class Lines(Reporter):
    """A line on stderr every `every` steps and for each event: for logs and pipes.

    A closed pipe, as after `2>&1 | head`, does not end the run: its files have everything as well.
    """

    def __init__(self, every: int) -> None:
        self.every = every

    def started(self, name: str, what: str, first_step: int, steps: int) -> None:
        self.note(f"{name}: {what}, steps {first_step} to {steps}")

    def stepped(self, moment: Moment) -> None:
        if moment.step % self.every == 0 or moment.step == moment.steps:
            self.note(describe(moment))

    def evaluated(self, step: int, loss: float, bits_per_byte: float | None) -> None:
        bits = "" if bits_per_byte is None else f"  {bits_per_byte:.4f} bits per byte"
        self.note(f"step {step}: validation loss {loss:.4f}{bits}")

    def saved(self, checkpoint: Path) -> None:
        self.note(f"saved {checkpoint}")

    def note(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(text, file=sys.stderr, flush=True)


class Live(Lines):
    """A progress bar on a terminal; events stay above it as lines."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__(every=1)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[text]}"),
            console=open_console(stderr=True),
        )
        self._drawn = 0.0

    def started(self, name: str, what: str, first_step: int, steps: int) -> None:
        self.note(f"{name}: {what}")
        self._task = self._progress.add_task(name, total=steps, completed=first_step, text="")
        self._progress.start()

    def stepped(self, moment: Moment) -> None:
        now = time.monotonic()
        if now - self._drawn > 0.1 or moment.step == moment.steps:
            self._drawn = now
            self._progress.update(self._task, completed=moment.step, text=describe(moment, True))

    def note(self, text: str) -> None:
        self._progress.console.print(text)

    def finished(self) -> None:
        self._progress.stop()


def for_terminal(log_every: int) -> Reporter:
    """The reporter that suits stderr: live on a terminal, else lines."""
    return Live() if sys.stderr.isatty() else Lines(log_every)


def describe(moment: Moment, short: bool = False) -> str:
    """One line: loss, rate, speed and time left."""
    parts = [] if short else [f"step {moment.step}/{moment.steps}"]
    parts += [f"loss {moment.loss:.4f}"]
    if moment.val_loss is not None and short:
        parts += [f"val {moment.val_loss:.4f}"]
    if not short:
        parts += [f"lr {moment.lr:.2e}", f"grad {moment.grad_norm:.2f}"]
        parts += [f"{1000 * moment.tokens / moment.step / moment.tokens_per_second:.0f} ms/step"]
    parts += [f"{format_count(moment.tokens_per_second)} tokens/s"]
    parts += [f"{format_seconds(moment.seconds_left)} left"]
    return "  ".join(parts)
