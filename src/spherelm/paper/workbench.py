"""What an item is made from: the records and models of its runs, and measurements on them.

reproduce.json      the size and the data of the folder
runs/ID/            run directories, with ID.toml and ID.log beside them
records/ID/         the small records of finished runs
measured/ID/        measurements on a trained model, kept so that each is made only once
ITEM/               the table or figure: index.html, result.md, result.json, pictures/
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spherelm import records
from spherelm.console import format_seconds
from spherelm.errors import UserError
from spherelm.paper import store
from spherelm.paper.points import Point
from spherelm.paper.size import Size
from spherelm.paper.store import Record

if TYPE_CHECKING:
    import torch

    from spherelm.inspect.insides import Insides
    from spherelm.saved import Loaded

P = TypeVar("P")
NEWS = 5.0
"""Seconds between lines about measurements."""
TOKENS = 8
"""Tokens of the text whose paths are followed: few, because no item shows the paths."""


def runs_of(out: Path) -> Path:
    return out / "runs"


def records_of(out: Path) -> Path:
    return out / "records"


class NoModel(UserError):
    """An item needs the model of a run that diverged."""


def _state_of(folder: Path) -> str:
    """A checksum of the names, sizes and times of all files, which changes when a file does."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    told = (f"{path.name!r} {file.st_size} {file.st_mtime_ns}" for path, file in found)
    return f"{zlib.crc32(' '.join(told).encode()):08x}"


@dataclass
class Workbench:
    """A folder of runs of one size, in which all runs that an item needs are done."""

    size: Size
    out: Path
    tasks: Path | None = None
    """Folder of the tasks' files; unset: none, or at nano a small built-in set."""
    books: Path | None = None
    """Folder of books as .txt; unset: none, or at nano the built-in corpus."""
    device_name: str = "auto"
    say: Callable[[str], None] = print
    _last: tuple[Path, Loaded] | None = None
    _insides: dict[tuple[str, int | None], Insides] = field(default_factory=dict)

    def record(self, point: Point) -> Record:
        """The record of a point's run."""
        return store.read_one(records_of(self.out) / self.size.job(point).id)

    def folder(self, point: Point) -> Path:
        """Its run directory."""
        return runs_of(self.out) / self.size.job(point).id

    def model(self, point: Point) -> Loaded:
        """Its trained model, on the device; the last one loaded is cached."""
        from spherelm.saved import load_model, to_device

        folder = self.folder(point)
        if not self.record(point).finished:
            raise NoModel(f"{folder.name} diverged, so there is no model to look at")
        if self._last is None or self._last[0] != folder:
            self._last = None  # first, as two may not fit in memory
            loaded = load_model(folder)
            model = to_device(loaded.model, self.device).eval()
            self._last = folder, loaded._replace(model=model)
        return self._last[1]

    @property
    def device(self) -> torch.device:
        from spherelm.ops.device import choose_device

        return choose_device(self.device_name, "--device")

    def measured(
        self,
        point: Point,
        name: str,
        source: str,
        folder: Path | None,
        measure: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """What `measure` finds on a trained model, cached from an earlier call.

        `source` says what it is measured on and `folder` holds its files: if either has changed,
        it is measured again.
        """
        source += "" if folder is None else f", {_state_of(folder)}"
        file = self.out / "measured" / self.size.job(point).id / f"{name}.json"
        if file.is_file() and (known := records.read(file)).get("source") == source:
            return known
        found = {"source": source, **measure()}
        file.parent.mkdir(parents=True, exist_ok=True)
        records.write(file, found)
        return found

    def insides(self, point: Point, label: str, layer: int | None = None) -> Insides:
        """The insides of a trained model, with the paths of only a few tokens."""
        from spherelm.data.open import open_builtin
        from spherelm.inspect.files import beginning_of
        from spherelm.inspect.insides import look_inside

        key = (self.size.job(point).id, layer)
        if key not in self._insides:
            text = beginning_of(open_builtin(), TOKENS)
            model, tokenizer, _ = self.model(point)
            self._insides[key] = look_inside(
                model, tokenizer, text, run=key[0], label=label, tokens=TOKENS, layer=layer
            )
        return self._insides[key]

    def each(self, things: Sequence[P], what: str) -> Iterator[P]:
        """Yield `things` one by one, printing a line of progress now and then."""
        began = told = time.monotonic()
        for done, thing in enumerate(things):
            now = time.monotonic()
            if done and now - told > NEWS:
                left = (now - began) / done * (len(things) - done)
                self.say(f"{what}: {done} of {len(things)}, about {format_seconds(left)} left")
                told = now
            yield thing
