"""Checkpoints: written whole, checked when read, one format for one device and for many.

    checkpoints/step_120/
      shard-00001-model-00001-of-00001.safetensors   tensors, written by each rank
      state.json                                     progress, configuration, random state
      manifest.json                                  size and checksum of every other file

A checkpoint is written under a name that no reader looks at and renamed when all of it is on the
disk. Tensors go through `torch.distributed.checkpoint` into safetensors, so that any number of
devices can read what any other number wrote, and nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from spherelm import durable
from spherelm.errors import UserError
from spherelm.train.processes import Processes

# It is meant: a run without torchrun is one process.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")

FORMAT = 1
_NAME = re.compile(r"step_(\d+)")


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint folder was written at."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise UserError(f"{checkpoint} is not a checkpoint folder; its name is not step_N")
    return int(match[1])


def list_checkpoints(folder: Path) -> list[Path]:
    """The finished checkpoints of a run, oldest first."""
    if not folder.is_dir():
        return []
    found = (p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir())
    return sorted(found, key=step_of)


def latest(folder: Path) -> Path | None:
    """The newest finished checkpoint of a run."""
    found = list_checkpoints(folder)
    return found[-1] if found else None


class Writing:
    """A checkpoint `folder`/step_N on its way to the disk: whole at the end, or not there at all.

    Every process writes its share of the tensors, the main one the rest. In the background, the
    tensors are copied before the constructor returns, and written while training goes on. All
    processes must call `finish`, at the same step; the checkpoints before it stay as they are.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        processes: Processes,
        background: bool = False,
    ) -> None:
        self.path = folder / f"step_{step}"
        self._temporary = folder / f".step_{step}.writing"
        self._state = {"format": FORMAT, "step": step, **state}
        self._processes = processes
        self._future: Future[Any] | None = None
        with self._or_say_what_is_left():
            processes.from_main(self._begin)
            writer = HuggingFaceStorageWriter(str(self._temporary), save_distributed=True)
            alone = processes.mesh is None
            if background:
                group = processes.background_group
                self._future = cast(
                    "Future[Any]",
                    async_save(
                        dict(tensors), storage_writer=writer, process_group=group, no_dist=alone
                    ),
                )
            else:
                dcp_save(dict(tensors), storage_writer=writer, no_dist=alone)

    def done(self) -> bool:
        """Whether this process has written its share."""
        return self._future is None or self._future.done()

    def finish(self) -> Path:
        """Wait for the writing, and give the checkpoint its name."""
        with self._or_say_what_is_left():
            if self._future is not None:
                self._future.result()
            self._processes.from_main(self._name)
        return self.path

    def _begin(self) -> None:
        _clear(self._temporary)
        self._temporary.mkdir(parents=True)

    def _name(self) -> None:
        durable.write_json(self._temporary / "state.json", self._state)
        durable.write_json(self._temporary / "manifest.json", _manifest(self._temporary))
        _clear(self.path)
        self._temporary.rename(self.path)
        durable.force_to_disk(self.path.parent)

    @contextlib.contextmanager
    def _or_say_what_is_left(self) -> Iterator[None]:
        try:
            yield
        except (Exception, CheckpointException) as error:
            if self._processes.is_main:
                _clear(self._temporary)
            kept = latest(self.path.parent)
            rescue = f"the last good checkpoint is {kept}" if kept else "there is no checkpoint yet"
            message = f"could not write checkpoint {self.path}: {_reason(error)}; {rescue}"
            raise UserError(message) from error


def verify(checkpoint: Path) -> dict[str, Any]:
    """Check every file of a checkpoint against its manifest; returns its state.json."""
    manifest = _read_json(checkpoint / "manifest.json", checkpoint)
    for name, expected in manifest["files"].items():
        path = checkpoint / name
        if not path.is_file():
            raise UserError(f"{checkpoint} is damaged: {name} is missing; {_advice(checkpoint)}")
        if path.stat().st_size != expected["bytes"]:
            raise UserError(
                f"{checkpoint} is damaged: {name} has {path.stat().st_size} bytes, "
                f"not {expected['bytes']}; {_advice(checkpoint)}"
            )
        if durable.checksum(path) != expected["crc32"]:
            raise UserError(
                f"{checkpoint} is damaged: the checksum of {name} does not match; "
                f"{_advice(checkpoint)}"
            )
    state = _read_json(checkpoint / "state.json", checkpoint)
    if state.get("format") != FORMAT:
        raise UserError(
            f"{checkpoint} has checkpoint format {state.get('format')!r}; "
            f"this version of spherelm reads format {FORMAT}"
        )
    return state


def load_tensors(checkpoint: Path, into: Mapping[str, Tensor]) -> None:
    """Fill the given tensors, whole or sharded, from a verified checkpoint."""
    dcp_load(
        dict(into),
        storage_reader=HuggingFaceStorageReader(str(checkpoint)),
        no_dist=not torch.distributed.is_initialized(),
    )


def prune(folder: Path, keep_last: int) -> None:
    """Remove all but the newest `keep_last` checkpoints and the one of the best validation loss."""
    found = list_checkpoints(folder)
    keep = set(found[-keep_last:])
    losses = {path: _validation_loss(path) for path in found}
    measured = [path for path in found if losses[path] is not None]
    if measured:
        keep.add(min(measured, key=lambda path: losses[path] or 0.0))
    for path in found:
        if path not in keep:
            doomed = path.with_name(f".{path.name}.removing")  # half removed is never chosen
            path.rename(doomed)
            _clear(doomed)


def clear_leftovers(folder: Path) -> None:
    """Remove what a killed process left half written or half removed."""
    if folder.is_dir():
        for path in folder.glob(".step_*"):
            _clear(path)


def _manifest(folder: Path) -> dict[str, Any]:
    files = {}
    for path in sorted(folder.iterdir()):
        durable.force_to_disk(path)
        files[path.name] = {"bytes": path.stat().st_size, "crc32": durable.checksum(path)}
    return {"files": files}


def _validation_loss(checkpoint: Path) -> float | None:
    try:
        state = json.loads((checkpoint / "state.json").read_text())
        return state.get("val_loss")
    except (OSError, ValueError):
        return None


def _read_json(path: Path, checkpoint: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(
            f"{checkpoint} is damaged: {path.name} cannot be read; {_advice(checkpoint)}"
        ) from None
    except (ValueError, RecursionError):
        value = {}
    if not isinstance(value, dict) or not value:
        raise UserError(f"{checkpoint} is damaged: {path.name} is not JSON; {_advice(checkpoint)}")
    return value


def _advice(checkpoint: Path) -> str:
    others = [p.name for p in list_checkpoints(checkpoint.parent) if p != checkpoint]
    if others:
        return f"remove it to go on from {others[-1]}"
    return "it is the only one of its run"


def _reason(error: BaseException) -> str:
    """The root of a chain of exceptions in a few words."""
    if isinstance(error, CheckpointException):  # of one or more ranks
        error = next(iter(error.failures.values()))[0]
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
