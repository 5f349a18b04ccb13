"""Read a saved model from its folder: one of our checkpoints, or one in Hugging Face's format."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from spherelm import durable, records
from spherelm.config import RunConfig, TrainConfig, WeightStorage
from spherelm.config_io import from_dict
from spherelm.data.tokenizer import DESCRIPTION, KINDS, Tokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.errors import UserError, no_folder, shortened, some
from spherelm.folders.owner import read_record
from spherelm.hf.card import check_losses
from spherelm.hf.names import from_hf_config, from_hf_tensors, to_hf_config, unfold_scales
from spherelm.model.sphere import row_norms
from spherelm.model.transformer import Transformer
from spherelm.runs.load import Saved, find_checkpoint, newest_checkpoint
from spherelm.runs.run_dir import RunDir, runs_in

FORMAT, VERSION = "spherelm export", 1
RECORD = "spherelm.json"
"""An export's own record, beside Hugging Face's files: configuration, losses and checksums."""
_MEANT = f"(if it was changed on purpose, remove {RECORD})"
WEIGHTS, PARTS = "model.safetensors", "model-*-of-*.safetensors"
"""Weights are in one file or, if transformers saved a large model, in several."""
TOKENIZER = {DESCRIPTION, *KINDS.values()}
"""Files of an export that hold its tokenizer."""

BF16_ROUNDING = 2**-8
"""How much the length of a unit vector may be off when its numbers were rounded to bfloat16."""

T = TypeVar("T")


def reading(path: str | Path, read: Callable[[Saved], T]) -> T:
    """The result of `read` for the model at `path`, which for a run is its newest checkpoint.

    Running training removes old checkpoints, and an export may be replaced: if that happens while
    reading, the checkpoint or export that is there then is read instead.
    """
    path = model_path(path)
    for attempt in range(100):
        if not path.is_dir():
            raise UserError(f"{no_folder(path)}; give a run, a checkpoint or an exported folder")
        folder = newest_checkpoint(path) if RunDir(path).holds_a_run() else path
        before = _identity(folder)
        find = find_checkpoint if (folder / "state.json").is_file() else find_export
        try:
            result = read(find(folder))
        except (Exception, CheckpointException):
            if before is not None and before == _identity(folder):
                raise
        else:
            if _identity(folder) in (before, None):  # None: removed, but only after it was read
                return result
        time.sleep(0.01 * attempt)
    raise UserError(f"{path} changes faster than it can be read; try again when less is written")


def model_path(path: object) -> Path:
    """The folder of a model, as a Path."""
    if not isinstance(path, (str, Path)):
        raise UserError(f"a model is named by its folder, not {shortened(path)}")
    return Path(path)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Changes when the folder is replaced by another; None if there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def checksum_of(folder: Path) -> str:
    """A checksum that changes with the model: that of the file with all other checksums or, in a
    folder saved by transformers, those of its configuration and weights."""
    for name in ("manifest.json", RECORD):
        if (folder / name).is_file():
            return durable.checksum(folder / name)
    files = [*folder.glob("config.json"), *_weight_files(folder)]
    return " ".join(map(durable.checksum, files))


@dataclass(frozen=True)
class Export(Saved):
    """A folder exported by us or saved by transformers."""

    kind = "export"
    folded: bool = False
    """Whether scales were multiplied into the matrices."""
    losses: tuple[dict[str, Any], ...] = ()
    """The losses in its record, if it has one."""

    def own_tokenizer(self) -> Tokenizer | None:
        there = any((self.folder / file).is_file() for file in TOKENIZER)
        return load_tokenizer(self.folder) if there else None

    def fill(self, model: Transformer) -> None:
        found = _read_safetensors(self.folder)
        if self.folded:
            found = unfold_scales(found, self.config.model, str(self.folder))
        native = from_hf_tensors(found, model.state_dict(), str(self.folder))
        if self.config.model.arch == "ngpt":
            _check_on_sphere(native, self.folder)
        model.load_state_dict(native, assign=True)


def _check_on_sphere(native: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse an nGPT of vectors that are not of unit length: loading would make them so, and the
    model would compute something else here than in transformers."""
    for name, matrix in native.items():
        if matrix.ndim == 2:
            lengths = row_norms(matrix)
            off = lengths[(lengths - 1).abs().argmax()].item()
            if abs(off - 1) > BF16_ROUNDING:
                raise UserError(
                    f"{folder} is off the sphere: {name} has a vector of length {off:.3g}, as "
                    "after merging an adapter or training without retraction; call "
                    "model.retract_() before save_pretrained, and measure the loss again"
                )


def find_export(folder: Path) -> Export:
    """The export in `folder`; its record, if it has one, must match the other files."""
    file, hf_file = folder / RECORD, folder / "config.json"
    if not hf_file.is_file():
        raise UserError(_no_model(folder))
    record = _read_record(file) if file.is_file() else None
    values = records.read(hf_file)
    model, folded = from_hf_config(values, str(hf_file)), bool(values.get("folded"))
    if record is None:  # saved by transformers: its training is unknown
        dtype = values.get("dtype", values.get("torch_dtype"))  # the latter in older transformers
        storage: WeightStorage = "bf16" if dtype == "bfloat16" else "fp32"
        config = RunConfig(model=model, train=TrainConfig(weight_storage=storage))
        return Export(folder, config, folded=folded)
    config = from_dict(RunConfig, record["config"], file)
    if from_hf_config(to_hf_config(config.model, "", folded), str(file)) != model:
        raise UserError(
            f"{hf_file} describes another model than {RECORD} beside it; export it again {_MEANT}"
        )
    if folded:  # its factors are vectors, whatever they were before
        config = dataclasses.replace(config, model=model)
    losses = tuple(record["losses"])
    return Export(folder, config, record["step"], record["val_loss"], None, folded, losses)


def _no_model(folder: Path) -> str:
    """An error message that says what the folder holds instead of a model, if that is known."""
    if found := runs_in(folder):
        return f"{folder} holds no model itself; give a run in it: {some(found)}"
    verb = read_record(folder).verb
    if verb is not None:
        what = f"{folder} holds no model, but what `spherelm {verb}` wrote"
        return f"{what}; give a run, a checkpoint or an exported folder"
    return (
        f"{folder} holds no model: neither a run (config.toml), nor a checkpoint (state.json), nor "
        "an export (config.json)"
    )


def _read_record(file: Path) -> dict[str, Any]:
    """An export's record; the files beside it must have the recorded checksums."""
    record = records.read_format(file, FORMAT, VERSION)
    records.field(record, "config", dict, file)
    if records.field(record, "step", (int, type(None)), file) is not None:
        records.step_number(file, record["step"])
    records.field(record, "val_loss", (int, float, type(None)), file)
    for losses in records.field(record, "losses", list, file):
        check_losses(losses, file)
    files = records.field(record, "crc32", dict, file)
    there = {name for name in files if records.beside(file, name).is_file()}
    missing = files.keys() - there
    if missing and missing != files.keys() & TOKENIZER:  # a missing tokenizer can be named instead
        raise UserError(f"{file.parent} is damaged: {min(missing)} is missing; export it again")
    for name in sorted(there):
        if durable.checksum(file.with_name(name)) != files[name]:
            raise UserError(
                f"{file.parent} is damaged: the checksum of {name} does not match; export it again "
                f"{_MEANT}"
            )
    return record


def _read_safetensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = _weight_files(folder)
    if not files:
        raise UserError(f"{folder} has no weights: {WEIGHTS} is missing")
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            found = load_file(file)
        except (SafetensorError, OSError) as error:
            first = str(error).splitlines()[0]
            raise UserError(f"{folder} has damaged weights: {first}") from None
        if twice := tensors.keys() & found.keys():
            raise UserError(f"{folder} has the tensor {min(twice)} in two files; remove one")
        tensors |= found
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    """The weight files that transformers would read; any others are ignored."""
    one = folder / WEIGHTS
    return [one] if one.is_file() else sorted(folder.glob(PARTS))
