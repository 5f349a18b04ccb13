"""A trained model from wherever it lies: a run directory, a checkpoint, or an exported folder.

Nothing is unpickled and nothing from the folder is executed: weights are safetensors, all else is
JSON and TOML.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from spherelm import durable
from spherelm.config import RunConfig
from spherelm.config_io import from_dict
from spherelm.data.dataset import open_dataset
from spherelm.data.tokenizer import DESCRIPTION, Tokenizer, load_tokenizer
from spherelm.errors import UserError
from spherelm.exchange.names import from_hf_config, from_hf_tensors
from spherelm.folders.names import beside, is_number, step_number
from spherelm.model.sphere import matrices
from spherelm.model.transformer import Transformer
from spherelm.train import checkpoint as checkpoints
from spherelm.train.run_dir import RunDir

EXPORT_FORMAT, EXPORT_VERSION = "spherelm export", 1
EXPORT_RECORD = "spherelm.json"
"""What an export says beside what Hugging Face reads: the run's configuration, losses, checksum."""
ATTEMPTS = 100
"""How often a model is read again that was replaced meanwhile."""

T = TypeVar("T")


class Loaded(NamedTuple):
    """A model with its tokenizer and the configuration of the run that made it."""

    model: Transformer
    tokenizer: Tokenizer
    config: RunConfig


@dataclass(frozen=True)
class Saved:
    """A saved model that was found but not read yet."""

    kind: Literal["checkpoint", "export"]
    folder: Path
    config: RunConfig
    step: int | None = None
    val_loss: float | None = None

    @property
    def run_root(self) -> Path:
        """The run directory of a checkpoint; the folder itself of an export."""
        return self.folder.parent.parent if self.kind == "checkpoint" else self.folder


def load_model(path: str | Path, tokenizer: str | None = None) -> Loaded:
    """The model, tokenizer and configuration at `path`, on the CPU.

    `path` is a run directory (its newest checkpoint), a checkpoint, or an exported folder;
    `tokenizer` names another tokenizer than the one found there.
    """

    def read(saved: Saved) -> Loaded:
        found = find_tokenizer(saved, tokenizer)
        return Loaded(read_weights(saved), found, saved.config)

    return reading(path, read)


def find_saved(path: str | Path) -> Saved:
    """What kind of folder `path` is, with the configuration of the model in it."""
    return reading(path, lambda saved: saved)


def reading(path: str | Path, read: Callable[[Saved], T]) -> T:
    """What `read` makes of the model at `path`.

    A training that goes on removes old checkpoints, and an export may be replaced: where that came
    between, it is read again, from the checkpoint or export that is there now.
    """
    path = Path(path)
    for attempt in range(ATTEMPTS):
        folder = _folder_of(path)
        before = _identity(folder)
        try:
            result = read(_saved_in(folder))
        except (Exception, CheckpointException):
            if before is not None and before == _identity(folder):
                raise
        else:
            if _identity(folder) in (before, None):  # removed since: what was read was whole
                return result
        time.sleep(0.01 * attempt)
    raise UserError(f"{path} changes faster than it can be read; try again when less is written")


def _identity(folder: Path) -> tuple[int, int] | None:
    """Changes when another folder takes the name; None where there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _folder_of(path: Path) -> Path:
    """The folder with the model: the newest checkpoint of a run, else `path` itself."""
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a run, a checkpoint or an exported folder")
    if not RunDir(path).holds_a_run():
        return path
    newest = checkpoints.latest(RunDir(path).checkpoints)
    if newest is None:
        raise UserError(f"the run {path} has no finished checkpoint yet")
    return newest


def _saved_in(path: Path) -> Saved:
    if (path / "state.json").is_file():
        state = checkpoints.verify(path)
        config = _run_config(state.get("config"), path)
        step = step_number(path / "state.json", state.get("step"))
        return Saved("checkpoint", path, config, step, state.get("val_loss"))
    if (path / "config.json").is_file():
        return _find_export(path)
    raise UserError(f"{path} holds no model: neither a run, nor a checkpoint, nor an export")


def read_weights(saved: Saved) -> Transformer:
    """The model with its weights, bit for bit as they were saved."""
    with torch.device("meta"):
        model = Transformer(saved.config.model)
    if saved.config.train.weight_storage == "bf16":
        for _, matrix in matrices(model):
            matrix.data = matrix.data.bfloat16()
    model.to_empty(device="cpu")
    if saved.kind == "checkpoint":
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        checkpoints.load_tensors(saved.folder, tensors)
        return model
    found = _read_safetensors(saved.folder)
    native = from_hf_tensors(found, model.state_dict(), str(saved.folder))
    model.load_state_dict(native, assign=True)
    return model


def find_tokenizer(saved: Saved, spec: str | None = None) -> Tokenizer:
    """The tokenizer that was named, else the one kept with the run, else the one of its data."""
    if spec is not None:
        tokenizer = load_tokenizer(spec)
    elif (saved.run_root / "tokenizer").is_dir():
        tokenizer = load_tokenizer(saved.run_root / "tokenizer")
    elif saved.kind == "export":
        if not any((saved.folder / f).is_file() for f in (DESCRIPTION, "tokenizer.json")):
            raise UserError(f"{saved.folder} has no tokenizer; name one with --tokenizer")
        tokenizer = load_tokenizer(saved.folder)
    else:
        try:
            tokenizer = open_dataset(saved.config.data.path, verify=False).tokenizer()
        except UserError as error:
            raise UserError(
                f"no tokenizer for {saved.folder} ({error}); name one with --tokenizer"
            ) from None
    if tokenizer.vocab_size > saved.config.model.vocab_size:
        raise UserError(
            f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} tokens, more than the "
            f"{saved.config.model.vocab_size} of the model in {saved.folder}"
        )
    return tokenizer


def _find_export(folder: Path) -> Saved:
    values = _read_json(folder / "config.json")
    model = from_hf_config(values, str(folder / "config.json"))
    record_file = folder / EXPORT_RECORD
    if not record_file.is_file():  # saved by transformers: no run of ours is known
        return Saved("export", folder, RunConfig(model=model))
    record = _read_json(record_file)
    if (record.get("format"), record.get("version")) != (EXPORT_FORMAT, EXPORT_VERSION):
        raise UserError(
            f"{record_file} is of version {record.get('version')!r}; "
            f"this version of spherelm reads version {EXPORT_VERSION}"
        )
    checksums = record.get("crc32", {})
    if not isinstance(checksums, dict):
        raise UserError(f"{record_file} is damaged: crc32 must be names and their checksums")
    for name, crc32 in checksums.items():
        file = beside(record_file, name)
        if not file.is_file():
            raise UserError(f"{folder} is damaged: {name} is missing; export it again")
        if durable.checksum(file) != crc32:
            raise UserError(
                f"{folder} is damaged: the checksum of {name} does not match; export it again "
                f"(if the weights were changed on purpose, remove {EXPORT_RECORD})"
            )
    config = _run_config(record.get("config"), record_file)
    step, val_loss = record.get("step"), record.get("val_loss")
    if step is not None:
        step = step_number(record_file, step)
    if val_loss is not None and not is_number(val_loss):
        raise UserError(f"{record_file} is damaged: val_loss must be a number, not {val_loss!r}")
    return Saved("export", folder, config, step, val_loss)


def _run_config(values: Any, where: Path) -> RunConfig:
    try:
        return from_dict(RunConfig, values)
    except UserError as error:
        raise UserError(f"{where} was written by another version of spherelm: {error}") from None


def _read_safetensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise UserError(f"{folder} has no weights: model.safetensors is missing")
    try:
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder} has damaged weights: {str(error).splitlines()[0]}") from None


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{file} is damaged: it is not a JSON object")
    return value
