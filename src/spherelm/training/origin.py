"""A run that begins with the weights of a saved model, instead of random ones.

All else of it is new: data, schedule, rate, optimizer, and the step counts from 0. The shape is the
model's. env.json says which files the weights were, since a run that was stopped before its first
checkpoint has to begin with them again.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spherelm import presets, records
from spherelm.config import ParallelConfig, RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.model.config import SCALE_NAMES, ModelConfig
from spherelm.model.transformer import Transformer
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.load import foreign_tokens
from spherelm.runs.run_dir import RunDir
from spherelm.saved import (
    Saved,
    checksum_of,
    find_saved,
    find_tokenizer,
    read_weights,
    reading,
)

MAY_DIFFER = ("context", "rope_base", "init_std")
"""Fields of a model that no weight depends on; a longer context may want a larger base of RoPE."""


@dataclass(frozen=True)
class Origin:
    """The saved model that a run begins with."""

    folder: str
    """The checkpoint or the export, not the run: that one may have a newer checkpoint later."""
    checksum: str
    """What `checksum_of` says of it."""

    @classmethod
    def of(cls, source: Saved) -> Origin:
        folder = source.folder.resolve()
        return cls(str(folder), checksum_of(folder))

    def give_weights_(self, model: Transformer) -> None:
        """Fill `model` with the weights; loading puts those on the sphere that were not on it."""
        if not os.path.isdir(self.folder) or checksum_of(Path(self.folder)) != self.checksum:
            raise UserError(
                f"{self.folder} is not any more the model that this run begins with; "
                "put it back, or start over with --force"
            )
        model.load_state_dict(reading(self.folder, read_weights).state_dict())

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def find_start(path: str | Path, run_dir: RunDir, goes_on: bool) -> tuple[RunConfig, Saved | None]:
    """The last configuration of the model to begin with, and the model itself.

    Where the run in `run_dir` is gone on with, that is the run's own, and the model is not needed
    any more; but it must have been that one.
    """
    if goes_on:
        check_same_origin(run_dir, path)
        return run_dir.read_config(), None
    source = find_saved(path)
    return source.config, source


def config_after(last: RunConfig, preset: str | None = None) -> RunConfig:
    """The settings of a run that begins with the model of another: the preset's, or that one's.

    Shape and context are the model's in any case. Where it runs is not taken from the last run.
    """
    if preset is None:
        train = dataclasses.replace(last.train, device="auto")
        return dataclasses.replace(last, train=train, parallel=ParallelConfig())
    named = presets.get(preset, last.model.arch)
    if named.model.arch != last.model.arch:
        raise UserError(
            f"preset {preset} has model.arch = {named.model.arch}, and the model to begin with is "
            f"a {last.model.arch}; name a preset that starts with {last.model.arch}-"
        )
    return dataclasses.replace(named, model=last.model)


def check_start(run: RunConfig, dataset: TokenDataset, source: Saved) -> None:
    """Refuse a shape that is not the model's, and data that its tokenizer did not make."""
    wanted, there = _weights_of(run.model), _weights_of(source.config.model)
    for name in dict.fromkeys((*there, *wanted)):  # in the order in which they are described
        if wanted.get(name) != there.get(name):
            raise UserError(
                f"cannot start from {source.run_root} with model.{name} = {wanted.get(name)}: "
                f"its weights have {there.get(name)}; leave it out"
            )
    if source.data == dataset.fingerprint:
        return
    try:
        tokenizer = find_tokenizer(source)
    except UserError:
        raise UserError(
            f"{source.run_root} has no tokenizer, and nothing else tells whether {dataset.path} "
            "holds its tokens; start from a model that has one"
        ) from None
    other = foreign_tokens(dataset, tokenizer)
    if other is not None:
        spec = source.tokenizer_folder if source.tokenizer_folder.is_dir() else tokenizer.name
        command = f"spherelm prepare ... --tokenizer {shlex.quote(str(spec))}"
        raise UserError(
            f"{source.run_root} reads tokens of {tokenizer.name}, and {dataset.path} holds tokens "
            f"of {other}; make them with `{command}`"
        )


def _weights_of(model: ModelConfig) -> dict[str, Any]:
    """The fields that decide what weights a model has and what they do, none left to defaults."""
    fields = {
        **dict(flatten(to_dict(model))),
        "n_kv_heads": model.kv_heads,
        "d_mlp": model.mlp_width,
        **dict(flatten({name: asdict(model.resolve_scale(name)) for name in SCALE_NAMES})),
    }
    return {name: value for name, value in fields.items() if name not in MAY_DIFFER}


def read_origin(run_dir: RunDir) -> Origin | None:
    """The model that the run in a folder began with; None where it began with random weights."""
    record = records.read(run_dir.env).get("init_from") if run_dir.env.is_file() else None
    if record is None:
        return None
    if not isinstance(record, dict):
        raise records.damaged(run_dir.env, "init_from is no table")
    return Origin(
        records.field(record, "folder", str, run_dir.env),
        records.field(record, "checksum", str, run_dir.env),
    )


def origin_of_unsaved(run_dir: RunDir) -> Origin | None:
    """The same, of a run that has no checkpoint to go on from."""
    saved = checkpoints.latest(run_dir.checkpoints) is not None
    return None if saved else read_origin(run_dir)


def check_same_origin(run_dir: RunDir, path: str | Path) -> None:
    """Refuse to go on with a run that began with another model than the one that is named."""
    origin, root = read_origin(run_dir), run_dir.root
    if origin is None:
        raise UserError(
            f"{root} did not begin with a model; leave out --init-from to go on with it, "
            "or start over with another --out"
        )
    if os.path.realpath(path) not in (origin.folder, str(RunDir.around(origin.folder))):
        raise UserError(
            f"{root} began with {origin.folder}, not with {path}; leave out --init-from to "
            "go on with it, or start over with another --out"
        )
