"""Checkpoints: written atomically, verified when read, in one format for any number of devices.

    checkpoints/step_120/
      shard-00001-model-00001-of-00001.safetensors   tensors, written by each rank
      state.json                                     progress, configuration, random state
      manifest.json                                  size and checksum of every other file

A checkpoint is written under a name that readers ignore, and renamed when all of it is on the disk.
`torch.distributed.checkpoint` stores tensors as safetensors, so any number of devices can read what
any other number wrote, and nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import logging
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

from spherelm import durable, records
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.folders import swap

# On purpose: a run without torchrun is one process.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")

FORMAT = 1
_NAME = re.compile(r"step_(\d+)")


def step_of(checkpoint: Path) -> int:
    """The step of a checkpoint, from its folder's name."""
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
    """Writes a checkpoint `folder`/step_N: in the end it is complete, or not there at all.

    Every process writes its share of the tensors, the main one the rest. In the background, the
    tensors are copied before the constructor returns, and written while training continues. All
    processes must call `finish` at the same step; earlier checkpoints stay as they are.
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
        self._temporary = swap.beside(self.path)
        self._state = {"format": FORMAT, "step": step, **state}
        self._processes = processes
        self._future: Future[Any] | None = None
        with self._or_say_what_is_left():
            processes.from_main(self._begin)
            writer = HuggingFaceStorageWriter(str(self._temporary), save_distributed=True)
            alone = processes.mesh is None
            if background:
                group = processes.background_group
                future = async_save(
                    dict(tensors), storage_writer=writer, process_group=group, no_dist=alone
                )
                self._future = cast("Future[Any]", future)
            else:
                dcp_save(dict(tensors), storage_writer=writer, no_dist=alone)

    def done(self) -> bool:
        """Whether this process has written its share."""
        return self._future is None or self._future.done()

    def finish(self) -> Path:
        """Wait until all is written, and give the checkpoint its name."""
        with self._or_say_what_is_left():
            if self._future is not None:
                self._future.result()
            self._processes.from_main(self._name)
        return self.path

    def _begin(self) -> None:
        _clear(self._temporary)
        self._temporary.mkdir(parents=True)

    def _name(self) -> None:
        records.write(self._temporary / "state.json", self._state)
        files = {}
        for path in sorted(self._temporary.iterdir()):
            durable.force_to_disk(path)
            files[path.name] = {"bytes": path.stat().st_size, "crc32": durable.checksum(path)}
        records.write(self._temporary / "manifest.json", {"files": files})
        swap.put(self._temporary, self.path)  # replaces one of the same step
        _clear(self._temporary)

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
    try:
        _check_files(checkpoint)
        file = checkpoint / "state.json"
        state = _read(file)
        if state.get("format") == FORMAT:
            if (step := records.field(state, "step", int, file)) != step_of(checkpoint):
                raise records.damaged(file, f"it is of step {step}")
            records.field(state, "val_loss", (int, float, type(None)), file)
    except records.Damaged as error:
        said = str(error).removeprefix(f"{checkpoint}/").replace(" is damaged: ", ": ", 1)
        raise records.damaged(checkpoint, f"{said}; {_advice(checkpoint)}") from None
    if state.get("format") != FORMAT:
        raise UserError(
            f"{checkpoint} has checkpoint format {state.get('format')!r}; "
            f"this version of spherelm reads format {FORMAT}"
        )
    return state


def _check_files(checkpoint: Path) -> None:
    manifest = checkpoint / "manifest.json"
    files = records.field(_read(manifest), "files", dict, manifest)
    for name, expected in files.items():
        path = records.beside(manifest, name)
        if not isinstance(expected, dict):
            raise records.damaged(manifest, f"what it says of {name} cannot be {expected!r}")
        size = records.field(expected, "bytes", int, manifest)
        crc32 = records.field(expected, "crc32", str, manifest)
        if not path.is_file():
            raise records.damaged(path, "it is missing")
        if path.stat().st_size != size:
            raise records.damaged(path, f"it has {path.stat().st_size} bytes, not {size}")
        if durable.checksum(path) != crc32:
            raise records.damaged(path, "its checksum is not that of manifest.json")
    for name in ("state.json", *(path.name for path in checkpoint.glob("*.safetensors"))):
        if name not in files:
            raise records.damaged(manifest, f"it says nothing of {name}")


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise records.damaged(path, "it is missing")
    return records.read(path)


def load_tensors(checkpoint: Path, into: Mapping[str, Tensor]) -> None:
    """Fill the given tensors, whole or sharded, from a verified checkpoint."""
    log = logging.getLogger()
    log.addFilter(_not_torchs_loader)  # it logs errors that it also raises
    try:
        dcp_load(
            dict(into),
            storage_reader=HuggingFaceStorageReader(str(checkpoint)),
            no_dist=not torch.distributed.is_initialized(),
        )
    except (RuntimeError, ValueError, KeyError, CheckpointException) as error:
        raise UserError(f"{checkpoint} does not fit its configuration: {_reason(error)}") from None
    finally:
        log.removeFilter(_not_torchs_loader)


def _not_torchs_loader(record: logging.LogRecord) -> bool:
    return record.module != "state_dict_loader"


def prune(folder: Path, keep_last: int) -> None:
    """Remove all but the newest `keep_last` checkpoints and the one of the best validation loss."""
    found = list_checkpoints(folder)
    keep = set(found[-keep_last:])
    losses = {path: loss for path in found if (loss := _validation_loss(path)) is not None}
    if losses:
        keep.add(min(losses, key=losses.__getitem__))
    for path in found:
        if path not in keep:
            doomed = path.with_name(f".{path.name}.removing")  # nobody reads a half removed one
            path.rename(doomed)
            _clear(doomed)


def set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint, so that it is no longer found."""
    aside = checkpoint.with_name(f"{checkpoint.name}.damaged")
    _clear(aside)
    checkpoint.rename(aside)
    return aside


def clear_leftovers(folder: Path) -> None:
    """Remove checkpoints that a killed process left half written or half removed."""
    if folder.is_dir():
        for path in folder.glob(".step_*"):
            _clear(path)


def _validation_loss(checkpoint: Path) -> float | None:
    path = checkpoint / "state.json"
    try:
        loss = records.field(records.read(path), "val_loss", (int, float, type(None)), path)
    except UserError:
        return None
    return None if loss is None else float(loss)


def _advice(checkpoint: Path) -> str:
    others = [p for p in list_checkpoints(checkpoint.parent) if p != checkpoint]
    before = [p.name for p in others if step_of(p) < step_of(checkpoint)]
    if before:
        return f"the one before is {before[-1]}"
    return "there is none before it" if others else "it is the only one of its run"


def _reason(error: BaseException) -> str:
    """The root cause of a chain of exceptions, in a few words."""
    if isinstance(error, CheckpointException):  # of one or more ranks
        error = next(iter(error.failures.values()))[0]
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


def _clear(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()  # never what it points to
    shutil.rmtree(folder, ignore_errors=True)
