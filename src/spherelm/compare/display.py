"""Progress of a comparison: a live row for each model on a terminal, or else plain lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spherelm.config import RunConfig
from spherelm.console import format_count, format_seconds, open_console
from spherelm.model.config import ARCH_NAMES, ARCHS, Arch
from spherelm.training.report.reporter import Lines, Moment, Reporter

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

FIELDS = {"loss": 10, "val": 9, "speed": 14, "left": 10}
"""What a row on a terminal shows, with widths, so that all fits into 80 columns."""


@dataclass(frozen=True)
class Display:
    """Gives each run of a comparison a reporter, and shows remarks between them."""

    reporter: Callable[[Arch], Reporter]
    note: Callable[[str], None]


@contextlib.contextmanager
def open_display(runs: Mapping[Arch, RunConfig]) -> Iterator[Display]:
    """Two live rows on a terminal: steps, losses, speed and time left. Lines in logs and pipes."""
    if not sys.stderr.isatty():
        train = runs["gpt"].train
        every = train.eval_every or train.log_every
        yield Display(lambda arch: Log(ARCH_NAMES[arch], every), Lines(every).note)
        return

    from rich.progress import BarColumn, Progress, TextColumn

    console = open_console(stderr=True)
    with Progress(
        TextColumn("[bold]{task.description:<4}"),
        BarColumn(bar_width=12),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        *(TextColumn(f"{{task.fields[{name}]:<{width}}}") for name, width in FIELDS.items()),
        console=console,
    ) as progress:
        blank: dict[str, Any] = dict.fromkeys(FIELDS, "") | {"loss": "waits"}
        rows = {
            arch: progress.add_task(ARCH_NAMES[arch], total=runs[arch].train.steps, **blank)
            for arch in ARCHS
        }
        yield Display(lambda arch: LiveRow(progress, rows[arch], ARCH_NAMES[arch]), console.print)


class LiveRow(Reporter):
    """The reporter that fills a row on a terminal."""

    def __init__(self, progress: Progress, task: TaskID, name: str) -> None:
        self._progress, self._task, self._name = progress, task, name

    def _update(self, step: int, **fields: str) -> None:
        self._progress.update(self._task, completed=step, **fields)  # type: ignore[arg-type]

    def started(self, name: str, what: str, first_step: int, steps: int) -> None:
        self._update(first_step, loss="done" if first_step == steps else "starts")

    def stepped(self, moment: Moment) -> None:
        left = f"{format_seconds(moment.seconds_left)} left"
        self._update(
            moment.step,
            loss=f"loss {moment.loss:.3f}",
            speed=f"{format_count(moment.tokens_per_second)} tokens/s",
            left="done" if moment.step == moment.steps else left,
        )

    def evaluated(self, step: int, loss: float, bits_per_byte: float | None) -> None:
        self._update(step, val=f"val {loss:.3f}")

    def note(self, text: str) -> None:
        self._progress.console.print(f"{self._name}: {text}")


class Log(Lines):
    """Lines that begin with the model's name; checkpoints are not mentioned."""

    def __init__(self, name: str, every: int) -> None:
        super().__init__(every)
        self._name = name

    def started(self, name: str, what: str, first_step: int, steps: int) -> None:
        self.note(f"{what}, steps {first_step} to {steps}")

    def saved(self, checkpoint: object) -> None: ...

    def note(self, text: str) -> None:
        super().note(f"{self._name:<4}  {text}")
