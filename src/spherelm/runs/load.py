"""Finds and reads saved models, with their tokenizers and data.

Here are the checkpoints of our runs; `hf.read` adds exported folders. Nothing is unpickled and
nothing from a folder is executed: weights are safetensors, all else is JSON and TOML.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from spherelm import records
from spherelm.config import RunConfig
from spherelm.config_io import from_dict
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.data.tokenizer import Tokenizer, same_ids
from spherelm.data.tokenizer_load import load_saved_tokenizer, load_tokenizer
from spherelm.errors import UserError
from spherelm.free_memory import require_memory
from spherelm.model.flops import count_parameters
from spherelm.model.sphere import store_matrices_
from spherelm.model.transformer import Transformer
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.run_dir import RunDir


@dataclass(frozen=True)
class Saved(ABC):
    """A saved model that was found, but whose weights have not been read yet."""

    kind: ClassVar[Literal["checkpoint", "export"]]
    folder: Path
    config: RunConfig
    step: int | None = None
    val_loss: float | None = None
    data: str | None = None
    """Fingerprint of its training data, if known."""

    @property
    def run_root(self) -> Path:
        """The folder that it belongs to."""
        return self.folder

    @property
    def tokenizer_folder(self) -> Path:
        """Where its own tokenizer is, if it has one."""
        return self.folder

    @abstractmethod
    def own_tokenizer(self) -> Tokenizer | None:
        """The tokenizer saved with it, if any."""

    @abstractmethod
    def fill(self, model: Transformer) -> None:
        """Load its weights into `model`, which has the same shape and dtypes."""


@dataclass(frozen=True)
class Checkpoint(Saved):
    """A checkpoint of a run."""

    kind = "checkpoint"
    began: int | None = None
    """The step that its run began at, if known."""

    @property
    def run_root(self) -> Path:
        """The run directory."""
        return self.folder.parent.parent

    @property
    def tokenizer_folder(self) -> Path:
        """The copy in the run directory."""
        return RunDir(self.run_root).tokenizer

    def own_tokenizer(self) -> Tokenizer | None:
        copied = self.tokenizer_folder
        return load_saved_tokenizer(copied) if copied.is_dir() else None

    def fill(self, model: Transformer) -> None:
        checkpoints.load_tensors(self.folder, named_tensors(model))


def newest_checkpoint(path: Path) -> Path:
    """The newest checkpoint of the run in the folder `path`."""
    for _ in range(5):  # a listing may miss both a checkpoint just written and one just removed
        if (newest := checkpoints.latest(RunDir(path).checkpoints)) is not None:
            return newest
        time.sleep(0.01)
    raise UserError(f"the run {path} has no finished checkpoint yet")


def find_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, after checking every file of it."""
    state = checkpoints.verify(folder)
    step = records.step_number(folder / "state.json", state["step"])
    began = records.field({"began": None, **state}, "began", (int, type(None)), folder)
    config = from_dict(RunConfig, state.get("config"), folder)
    return Checkpoint(folder, config, step, state["val_loss"], state.get("data"), began)


def named_tensors(model: Transformer) -> dict[str, Tensor]:
    """The model's tensors by their names in a checkpoint."""
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def read_weights(saved: Saved) -> Transformer:
    """The model on the CPU, with its weights bit for bit as saved."""
    in_bf16 = saved.config.train.weight_storage == "bf16"
    needed = (2 if in_bf16 else 4) * count_parameters(saved.config.model).total
    require_memory(f"the model in {saved.folder}", needed, torch.device("cpu"), "use a smaller one")
    with torch.device("meta"):
        model = Transformer(saved.config.model)
    if in_bf16:
        store_matrices_(model, torch.bfloat16)
    model.to_empty(device="cpu")
    saved.fill(model)
    return model


def find_tokenizer(saved: Saved, spec: str | None = None) -> Tokenizer:
    """The tokenizer `spec`, else the one saved with the model, else that of its data."""
    own = saved.own_tokenizer()
    if spec is None:
        tokenizer = own or _tokenizer_of_data(saved)
    else:
        tokenizer = load_tokenizer(spec)
        if own is not None and not same_ids(tokenizer, own):
            raise UserError(
                f"{saved.run_root} has its own tokenizer, {own.name}, and {tokenizer.name} "
                "gives other ids; leave out --tokenizer"
            )
    if tokenizer.vocab_size > saved.config.model.vocab_size:
        raise UserError(
            f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} tokens, more than the "
            f"{saved.config.model.vocab_size} of the model in {saved.folder}"
        )
    return tokenizer


def _tokenizer_of_data(saved: Saved) -> Tokenizer:
    """The tokenizer of its training data, if that is still there."""
    try:
        if saved.data is None:
            raise UserError("it does not say which data it was trained on")
        dataset = open_dataset(saved.config.data.path, verify=False)
        if saved.data != dataset.fingerprint:
            raise UserError(f"{dataset.path} is not the data that it was trained on")
        return dataset.tokenizer()
    except UserError as error:
        why = str(error).partition("; ")[0]  # without the remedy, which is about data
        raise UserError(
            f"no tokenizer for {saved.folder} ({why}); name one with --tokenizer"
        ) from None


def open_own_data(saved: Saved, path: str | None = None, spec: str | None = None) -> TokenDataset:
    """The data at `path`, or that of the run; refused if its tokens are not the model's.

    It must be the data the model was trained on, or be made by the same tokenizer: with the ids of
    another the loss would mean nothing.
    """
    run = saved.config
    own = run.data.path
    if path is None and own is not None and not Path(own).exists():
        raise UserError(
            f"{saved.run_root} was trained on {own}, which is not here; name the folder of its "
            "data with --data, or a text with --text"
        )
    dataset = open_dataset(path or own, vocab_size=run.model.vocab_size)
    if saved.data == dataset.fingerprint:
        return dataset
    tokenizer = find_tokenizer(saved, spec)
    other = foreign_tokens(dataset, tokenizer)
    if other is not None:
        raise UserError(
            f"{saved.run_root} reads tokens of {tokenizer.name}, and {dataset.path} holds tokens "
            f"of {other}; name the run's own data with --data, or a text with --text"
        )
    return dataset


def foreign_tokens(dataset: TokenDataset, tokenizer: Tokenizer) -> str | None:
    """The name of the data's tokenizer if its ids are not those of `tokenizer`, else None."""
    if dataset.tokenizer_fingerprint == tokenizer.fingerprint:
        return None
    if dataset.tokenizer_fingerprint is None:
        return "an unknown tokenizer"
    made_by = dataset.tokenizer()
    return None if same_ids(made_by, tokenizer) else made_by.name
