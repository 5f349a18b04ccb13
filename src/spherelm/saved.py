"""Loads a trained model from a run directory, a checkpoint, or an exported folder.

How each is found and read is in `runs.load` and `hf.read`; to use models, this file is enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from spherelm.config import RunConfig
from spherelm.data.tokenizer import Tokenizer
from spherelm.free_memory import require_memory
from spherelm.hf.read import checksum_of as checksum_of
from spherelm.hf.read import reading as reading
from spherelm.model.transformer import Transformer
from spherelm.runs.load import Saved as Saved
from spherelm.runs.load import find_tokenizer as find_tokenizer
from spherelm.runs.load import open_own_data as open_own_data
from spherelm.runs.load import read_weights as read_weights


class Loaded(NamedTuple):
    """A model with its tokenizer and the configuration of the run that made it."""

    model: Transformer
    tokenizer: Tokenizer
    config: RunConfig


def load_model(path: str | Path, tokenizer: str | None = None) -> Loaded:
    """The model, tokenizer and configuration at `path`, on the CPU.

    `path` is a run directory (its newest checkpoint), a checkpoint, or an exported folder;
    `tokenizer` names one to use instead of that found there.
    """

    def read(saved: Saved) -> Loaded:
        found = find_tokenizer(saved, tokenizer)
        return Loaded(read_weights(saved), found, saved.config)

    return reading(path, read)


def find_saved(path: str | Path) -> Saved:
    """The saved model at `path`, with its configuration, but without reading its weights."""
    return reading(path, lambda saved: saved)


def to_device(
    model: Transformer, device: torch.device, folded: torch.dtype | None = None
) -> Transformer:
    """Move `model` to a device, if that has room for it and for a copy in the dtype `folded`."""
    moved = sum(p.numel() * p.element_size() for p in model.parameters() if p.device != device)
    copy = sum(p.numel() * folded.itemsize for p in model.parameters()) if folded else 0
    require_memory("this model", moved + copy, device, "use a smaller one, or another device")
    return model.to(device)
