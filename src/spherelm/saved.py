"""A trained model from wherever it lies: a run directory, a checkpoint, or an exported folder.

Nothing is unpickled and nothing from the folder is executed: weights are safetensors, all else is
JSON and TOML.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from spherelm import durable, records
from spherelm.config import RunConfig, TrainConfig, WeightStorage
from spherelm.config_io import from_dict
from spherelm.data.dataset import TokenDataset, open_dataset
from spherelm.data.tokenizer import (
    DESCRIPTION,
    KINDS,
    Tokenizer,
    load_saved_tokenizer,
    load_tokenizer,
    same_ids,
)
from spherelm.errors import UserError
from spherelm.free_memory import require_memory
from spherelm.hf.card import check_losses
from spherelm.hf.names import from_hf_config, from_hf_tensors, to_hf_config, unfold_scales
from spherelm.model.flops import count_parameters
from spherelm.model.sphere import store_matrices_
from spherelm.model.transformer import Transformer
from spherelm.records import beside, step_number
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.run_dir import RunDir

EXPORT_FORMAT, EXPORT_VERSION = "spherelm export", 1
TOKENIZER = {DESCRIPTION, *KINDS.values()}
EXPORT_RECORD = "spherelm.json"
"""What an export says beside what Hugging Face reads: the run's configuration, losses, checksum."""
ATTEMPTS = 100
"""How often a model is read again that was replaced meanwhile."""
LOOKS = 5
"""How often a run is looked at before it is said to have no checkpoint."""

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
    began: int | None = None
    """The step that the run of a checkpoint set out from, where that is known."""
    data: str | None = None
    """Fingerprint of the data that a checkpoint was trained on."""
    folded: bool = False
    """Whether scales were multiplied into the matrices of an export."""

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
    path = model_path(path)
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


def model_path(path: object) -> Path:
    """The folder of a model, as it was named."""
    if not isinstance(path, (str, Path)):
        raise UserError(f"a model is named by its folder, not {path!r}")
    return Path(path)


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
    for _ in range(LOOKS):  # a list made while one checkpoint comes and another goes may miss both
        if (newest := checkpoints.latest(RunDir(path).checkpoints)) is not None:
            return newest
        time.sleep(0.01)
    raise UserError(f"the run {path} has no finished checkpoint yet")


def _saved_in(path: Path) -> Saved:
    if (path / "state.json").is_file():
        state = checkpoints.verify(path)
        config = from_dict(RunConfig, state.get("config"), path)
        step = step_number(path / "state.json", state["step"])
        began = records.field({"began": None, **state}, "began", (int, type(None)), path)
        data = state.get("data")
        return Saved("checkpoint", path, config, step, state["val_loss"], began, data)
    if (path / "config.json").is_file():
        return _find_export(path)
    raise UserError(
        f"{path} holds no model: neither a run (config.toml), nor a checkpoint (state.json), nor "
        "an export (config.json)"
    )


def read_weights(saved: Saved) -> Transformer:
    """The model with its weights, bit for bit as they were saved."""
    stored = 2 if saved.config.train.weight_storage == "bf16" else 4
    needed = stored * count_parameters(saved.config.model).total
    require_memory(f"the model in {saved.folder}", needed, torch.device("cpu"), "use a smaller one")
    with torch.device("meta"):
        model = Transformer(saved.config.model)
    if saved.config.train.weight_storage == "bf16":
        store_matrices_(model, torch.bfloat16)
    model.to_empty(device="cpu")
    if saved.kind == "checkpoint":
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        checkpoints.load_tensors(saved.folder, tensors)
        return model
    found = _read_safetensors(saved.folder)
    if saved.folded:
        found = unfold_scales(found, saved.config.model, str(saved.folder))
    native = from_hf_tensors(found, model.state_dict(), str(saved.folder))
    model.load_state_dict(native, assign=True)
    return model


def to_device(
    model: Transformer, device: torch.device, folded: torch.dtype | None = None
) -> Transformer:
    """`model` on a device that has room for it, and for a `folded` copy where one will be made."""
    parameters = sum(p.numel() for p in model.parameters())
    moved = sum(p.numel() * p.element_size() for p in model.parameters() if p.device != device)
    copy = 0 if folded is None else parameters * folded.itemsize
    require_memory("this model", moved + copy, device, "use a smaller one, or another device")
    return model.to(device)


def find_tokenizer(saved: Saved, spec: str | None = None) -> Tokenizer:
    """The tokenizer that was named, else the one kept with the run, else the one of its data."""
    own = _own_tokenizer(saved)
    if spec is not None:
        tokenizer = load_tokenizer(spec)
        if own is not None and not same_ids(tokenizer, own):
            raise UserError(
                f"{saved.run_root} has a tokenizer of its own, {own.name}, and {tokenizer.name} "
                "gives other ids; leave out --tokenizer"
            )
    else:
        tokenizer = own or _tokenizer_of_data(saved)
    if tokenizer.vocab_size > saved.config.model.vocab_size:
        raise UserError(
            f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} tokens, more than the "
            f"{saved.config.model.vocab_size} of the model in {saved.folder}"
        )
    return tokenizer


def _own_tokenizer(saved: Saved) -> Tokenizer | None:
    """The tokenizer that was copied into the run, or lies in the exported folder."""
    if (saved.run_root / "tokenizer").is_dir():
        return load_saved_tokenizer(saved.run_root / "tokenizer")
    files = (DESCRIPTION, "tokenizer.json")
    if saved.kind == "export" and any((saved.folder / file).is_file() for file in files):
        return load_tokenizer(saved.folder)
    return None


def _tokenizer_of_data(saved: Saved) -> Tokenizer:
    """The tokenizer of the very data that a checkpoint was trained on, if that is still there."""
    if saved.kind == "export":
        raise UserError(f"{saved.folder} has no tokenizer; name one with --tokenizer")
    try:
        dataset = open_dataset(saved.config.data.path, verify=False)
        if saved.data != dataset.fingerprint:
            raise UserError(f"{dataset.path} is not the data that it was trained on")
        return dataset.tokenizer()
    except UserError as error:
        raise UserError(
            f"no tokenizer for {saved.folder} ({error}); name one with --tokenizer"
        ) from None


def open_own_data(saved: Saved, path: str | None = None, spec: str | None = None) -> TokenDataset:
    """The data at `path`, or of the run: refused where its tokens are not those of the model.

    They are if it is the very data the model was trained on, or of the same tokenizer: ids of
    another would give a loss that means nothing.
    """
    run = saved.config
    dataset = open_dataset(path or run.data.path, vocab_size=run.model.vocab_size)
    if saved.data == dataset.fingerprint:
        return dataset
    tokenizer = find_tokenizer(saved, spec)
    if dataset.tokenizer_fingerprint == tokenizer.fingerprint:
        return dataset
    made_by = None if dataset.tokenizer_fingerprint is None else dataset.tokenizer()
    if made_by is None or not same_ids(made_by, tokenizer):
        name = "an unknown tokenizer" if made_by is None else made_by.name
        raise UserError(
            f"{saved.run_root} reads tokens of {tokenizer.name}, and {dataset.path} holds tokens "
            f"of {name}; name the run's own data with --data, or a text with --text"
        )
    return dataset


def _find_export(folder: Path) -> Saved:
    record_file = folder / EXPORT_RECORD
    record = read_record(record_file) if record_file.is_file() else None
    values = records.read(folder / "config.json")
    model, folded = from_hf_config(values, str(folder / "config.json")), bool(values.get("folded"))
    if record is None:  # saved by transformers: no run of ours is known
        storage: WeightStorage = "bf16" if values.get("dtype") == "bfloat16" else "fp32"
        train = TrainConfig(weight_storage=storage)
        return Saved("export", folder, RunConfig(model=model, train=train), folded=folded)
    config = from_dict(RunConfig, record["config"], record_file)
    if from_hf_config(to_hf_config(config.model, "", folded), str(record_file)) != model:
        raise UserError(
            f"{folder / 'config.json'} describes another model than {EXPORT_RECORD} beside it; "
            f"export it again (if it was changed on purpose, remove {EXPORT_RECORD})"
        )
    if folded:  # whose factors are vectors, whatever they were before
        config = dataclasses.replace(config, model=model)
    return Saved("export", folder, config, record["step"], record["val_loss"], folded=folded)


def read_record(file: Path) -> dict[str, Any]:
    """What an export says of itself; the files beside it must be those that were written."""
    record = records.read_format(file, EXPORT_FORMAT, EXPORT_VERSION)
    records.field(record, "config", dict, file)
    if records.field(record, "step", (int, type(None)), file) is not None:
        step_number(file, record["step"])
    records.field(record, "val_loss", (int, float, type(None)), file)
    for losses in records.field(record, "losses", list, file):
        check_losses(losses, file)
    files = records.field(record, "crc32", dict, file)
    there = {name for name in files if beside(file, name).is_file()}
    missing = files.keys() - there
    if missing and missing != files.keys() & TOKENIZER:  # without any tokenizer, one can be named
        raise UserError(f"{file.parent} is damaged: {min(missing)} is missing; export it again")
    for name in sorted(there):
        if durable.checksum(file.with_name(name)) != files[name]:
            raise UserError(
                f"{file.parent} is damaged: the checksum of {name} does not match; export it "
                f"again (if it was changed on purpose, remove {EXPORT_RECORD})"
            )
    return record


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
