"""What a person sees while a comparison goes on: a live row for each model, or plain lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from spherelm.compare.pair import ARCHS, NAMES
from spherelm.config import RunConfig
from spherelm.model.config import Arch
from spherelm.train.report.reporter import Lines, Moment, Reporter, format_count, format_seconds


class Display(Protocol):
    """Gives each run of a comparison a reporter, and shows remarks between them."""

    def reporter(self, arch: Arch) -> Reporter: ...
    def note(self, text: str) -> None: ...


@contextlib.contextmanager
def open_display(runs: Mapping[Arch, RunConfig]) -> Iterator[Display]:
    """The display that suits where stderr goes."""
    if sys.stderr.isatty():
        board = Board(runs)
        with board.progress:
            yield board
    else:
        yield Log(runs)


class Board:
    """Two live rows on a terminal: steps, losses, speed and time left."""

    def __init__(self, runs: Mapping[Arch, RunConfig]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        fields = {"loss": 10, "val": 9, "speed": 14, "left": 10}  # fits into 80 columns
        self.progress = Progress(
            TextColumn("[bold]{task.description:<4}"),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            *(TextColumn(f"{{task.fields[{name}]:<{width}}}") for name, width in fields.items()),
            console=Console(stderr=True),
        )
        blank: dict[str, Any] = dict.fromkeys(fields, "") | {"loss": "waits"}
        self._rows = {
            arch: self.progress.add_task(NAMES[arch], total=runs[arch].train.steps, **blank)
            for arch in ARCHS
        }

    def reporter(self, arch: Arch) -> Reporter:
        return Row(self, arch)

    def note(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def update(self, arch: Arch, completed: int, **fields: Any) -> None:
        self.progress.update(self._rows[arch], completed=completed, **fields)


class Row(Reporter):
    """The reporter that fills a row of the board."""

    def __init__(self, board: Board, arch: Arch) -> None:
        self._board, self._arch = board, arch

    def started(self, name: str, first_step: int, steps: int) -> None:
        self._board.update(self._arch, first_step, loss="done" if first_step == steps else "starts")

    def stepped(self, moment: Moment) -> None:
        self._board.update(
            self._arch,
            moment.step,
            loss=f"loss {moment.loss:.3f}",
            speed=f"{format_count(moment.tokens_per_second)} tokens/s",
            left="done" if moment.step == moment.steps else left(moment),
        )

    def evaluated(self, step: int, loss: float, bits_per_byte: float | None) -> None:
        self._board.update(self._arch, step, val=f"val {loss:.3f}")

    def note(self, text: str) -> None:
        self._board.note(f"{NAMES[self._arch]}: {text}")


class Log:
    """Lines on stderr, for logs and pipes."""

    def __init__(self, runs: Mapping[Arch, RunConfig]) -> None:
        self._runs = runs

    def reporter(self, arch: Arch) -> Reporter:
        train = self._runs[arch].train
        return LogOfOne(NAMES[arch], train.eval_every or train.log_every)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class LogOfOne(Lines):
    """Lines that begin with the model's name; a checkpoint is not worth one here."""

    def __init__(self, name: str, every: int) -> None:
        super().__init__(every)
        self._name = name

    def started(self, name: str, first_step: int, steps: int) -> None:
        self.note(f"steps {first_step} to {steps}")

    def stepped(self, moment: Moment) -> None:
        if moment.step % self.every == 0 or moment.step == moment.steps:
            speed = format_count(moment.tokens_per_second)
            self.note(
                f"step {moment.step}/{moment.steps}  loss {moment.loss:.4f}  "
                f"{speed} tokens/s  {left(moment)}"
            )

    def saved(self, checkpoint: object) -> None: ...

    def note(self, text: str) -> None:
        super().note(f"{self._name:<4}  {text}")


def left(moment: Moment) -> str:
    """Time until the run ends."""
    return f"{format_seconds(moment.seconds_left)} left"
