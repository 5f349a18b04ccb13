"""Make items of the paper in a folder: train what is missing, measure and write the pages."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spherelm import durable, records
from spherelm.console import counted
from spherelm.errors import UserError
from spherelm.eval.tasks import NO_HARNESS
from spherelm.folders import place
from spherelm.folders.kinds import REPRODUCE
from spherelm.paper import overview, render, scores, store
from spherelm.paper.item import Item
from spherelm.paper.named import named
from spherelm.paper.runner import Job, Runner, has_ended, keep_ended
from spherelm.paper.size import Size
from spherelm.paper.workbench import NoModel, Workbench, records_of, runs_of

BUILT_IN = "the built-in corpus"


@dataclass(frozen=True)
class Request:
    """What to make, where, and from which data."""

    items: Sequence[Item]
    size: Size
    out: Path
    data: str | None = None
    tasks: Path | None = None
    books: Path | None = None
    known: Path | None = None
    """Folder with records of finished runs, used by items that need no models."""
    only: str = "*"
    workers: int | None = None
    minutes: float | None = None
    redraw: bool = False
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.known is not None and not self.known.is_dir():
            raise UserError(f"--records {self.known} is not a folder")

    @cached_property
    def jobs(self) -> list[Job]:
        """The runs of all items, each once."""
        return list({job.id: job for item in self.items for job in item.jobs(self.size)}.values())

    @cached_property
    def _with_models(self) -> set[str]:
        """Names of the runs whose models an item needs."""
        return {job.id for item in self.items if item.weights for job in item.jobs(self.size)}

    def runner(self, say: Callable[[str], None] = print) -> Runner:
        """The runner for the runs that --only names."""
        jobs = named(self.jobs, self.only, lambda job: job.id, "--dry-run")
        return Runner(
            jobs,
            self.data,
            runs_of(self.out),
            records_of(self.out),
            workers=self.size.workers if self.workers is None else self.workers,
            seconds=None if self.minutes is None else 60 * self.minutes,
            models=self._with_models,
            say=say,
        )

    def is_done(self, job: Job) -> bool:
        """Whether no item needs this run to be trained any more."""
        with_model = job.id in self._with_models
        known = self.known is not None and store.has(self.known, job.id) and not with_model
        return known or self.has_ended(job, with_model)

    def has_ended(self, job: Job, with_model: bool) -> bool:
        """Whether a run has ended in `out`."""
        return has_ended(job, runs_of(self.out), records_of(self.out), with_model=with_model)

    def lacks(self, item: Item) -> str | None:
        """Why an item cannot be made here: the first thing missing, or None."""
        built_in = self.size.built_in
        if item.tasks and not built_in and self.tasks is None:
            return (
                "--tasks-dir must be given: the folder of the tasks' files (docs/evaluation.md has "
                "their form)"
            )
        if item.tasks and not scores.has_harness():
            return NO_HARNESS
        if item.books and not built_in and self.books is None:
            return "--books must be given: a folder of books as .txt files"
        if item.cuda and not built_in and (device := self._device()) != "cuda":
            size = self.size.name
            return f"at --size {size} it needs a CUDA device, not {device}; --size nano does not"
        return None

    def _device(self) -> str:
        from spherelm.ops.device import choose_device

        return choose_device(self.device, "--device").type

    def check(self) -> None:
        """Refuse impossible requests before anything is written or trained."""
        trains = not self.redraw and any(not self.is_done(job) for job in self.jobs)
        if self.data is None and not self.size.built_in and trains:
            raise UserError(
                "--data must be given: the folder of tokens that `spherelm prepare` made"
            )
        if self.books is not None and not self.books.is_dir():
            raise UserError(f"--books {self.books} is not a folder")
        scores.check(self.tasks)


def _possible(request: Request) -> tuple[Request, dict[str, str]]:
    """The request without the items that cannot be made here, and a line about each of those.

    It is an error if none can be made.
    """
    lacking = {item.name: lack for item in request.items if (lack := request.lacks(item))}
    items = [item for item in request.items if item.name not in lacking]
    if not items:
        raise UserError("; ".join(f"{name} cannot be made: {lacking[name]}" for name in lacking))
    left_out = {name: f"{name} is left out: {lack}" for name, lack in lacking.items()}
    return dataclasses.replace(request, items=items), left_out


def reproduce(request: Request, say: Callable[[str], None] = print) -> list[Path]:
    """Train missing runs and write the pages of all items whose runs are done; returns the pages'
    folders.

    Items that cannot be made here are named and left out; it is an error if that leaves none.
    """
    inputs = [request.data, request.tasks, request.books, request.known]
    place.check_apart(request.out, inputs)
    place.check_own(request.out, REPRODUCE)
    request, left_out = _possible(request)
    request.check()
    for line in left_out.values():
        say(line)
    runner = request.runner(say)
    with place.owned(request.out, REPRODUCE):
        place.check_own(request.out, REPRODUCE)  # again: another call may have written since
        data = _mark(request)
        _adopt(request)
        keep_ended(request.jobs, runs_of(request.out), records_of(request.out))
        runner.out.mkdir(exist_ok=True)
        if not request.redraw:
            runner.run()
        return _write_pages(request, data, left_out, say)


def _mark(request: Request) -> str:
    """Record the folder's size and data, or check them against its record; returns the name of the
    data."""
    from spherelm.data.open import open_dataset

    file = request.out / "reproduce.json"
    there = records.read(file) if file.is_file() else {}
    size, data, called = request.size.name, there.get("data"), there.get("called")
    if there.get("size", size) != size:
        raise UserError(
            f"{request.out} holds reproductions at --size {there['size']}, not {size}; choose "
            "another --out"
        )
    if request.data is not None or request.size.built_in:
        given = BUILT_IN if request.data is None else Path(request.data).resolve().name
        fingerprint = open_dataset(request.data).fingerprint
        if data not in (None, fingerprint):
            raise UserError(
                f"{request.out} holds runs on other data than "
                f"{request.data or BUILT_IN}; choose another --out"
            )
        data, called = fingerprint, given
    now = {"size": size, "data": data, "called": called}
    if now != there:
        durable.write_json(file, now)
    return called or "data whose name was not recorded"


def _adopt(request: Request) -> None:
    """Copy the records given by --records into the folder."""
    if request.known is None:
        return
    here = records_of(request.out)
    for job in request.jobs:
        if store.has(request.known, job.id) and not store.has(here, job.id):
            shutil.copytree(request.known / job.id, here / job.id, dirs_exist_ok=True)


def _write_pages(
    request: Request, data: str, left_out: Mapping[str, str], say: Callable[[str], None]
) -> list[Path]:
    bench = Workbench(request.size, request.out, request.tasks, request.books, request.device, say)
    written, left = [], dict(left_out)
    for item in request.items:
        jobs = item.jobs(request.size)
        missing = [job for job in jobs if not request.has_ended(job, item.weights)]
        if missing:
            runs = counted(len(jobs), "run")
            left[item.name] = f"{item.name}: {len(missing)} of {runs} not done yet"
            continue
        say(f"{item.name}: making the page")
        found = [store.read_one(records_of(request.out) / job.id) for job in jobs]
        try:
            page = render.Page(item, request.size, item.make(bench), found, data)
        except NoModel as error:
            left[item.name] = f"{item.name} cannot be made: {error}"
            continue
        render.write(page, request.out / item.name)
        written.append(request.out / item.name)
    for line in left.values():
        say(line)
    if written:
        overview.write(request.out, request.size, left)
    return written
