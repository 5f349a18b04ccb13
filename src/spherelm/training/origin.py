"""Runs that begin with the weights of a saved model instead of random ones.

Everything else is new: data, schedule, rate, optimizer, and steps count from 0. The shape is the
saved model's. env.json records which files held the weights, since a run that is stopped before its
first checkpoint has to read them again.
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
"""Fields that the weights do not depend on; a longer context may need a larger RoPE base."""


@dataclass(frozen=True)
class Origin:
    """The saved model that a run begins with."""

    folder: str
    """The checkpoint or export, not the run, which may have a newer checkpoint later."""
    checksum: str
    """Its `checksum_of`."""

    @classmethod
    def of(cls, source: Saved) -> Origin:
        folder = source.folder.resolve()
        return cls(str(folder), checksum_of(folder))

    def give_weights_(self, model: Transformer) -> None:
        """Fill `model` with the weights; loading puts any that are off the sphere back on it."""
        if not os.path.isdir(self.folder) or checksum_of(Path(self.folder)) != self.checksum:
            raise UserError(
                f"{self.folder} is no longer the model that this run begins with; "
                "put it back, or start over with --force"
            )
        model.load_state_dict(reading(self.folder, read_weights).state_dict())


def find_start(path: str | Path, run_dir: RunDir, goes_on: bool) -> tuple[RunConfig, Saved | None]:
    """The configuration of the model to begin with, and the model itself.

    If the run in `run_dir` is resumed, its own configuration, and no model: it is no longer needed,
    but must be the one that the run began with.
    """
    if goes_on:
        check_same_origin(run_dir, path)
        return run_dir.read_config(), None
    source = find_saved(path)
    return source.config, source


def config_after(last: RunConfig, preset: str | None = None) -> RunConfig:
    """The settings of a run that begins with the model of the run `last`: the preset's or `last`'s.

    Shape and context are always the model's. Device and parallelism are not taken from `last`.
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
    """Refuse a shape other than the model's, and data made by another tokenizer."""
    wanted, there = _weights_of(run.model), _weights_of(source.config.model)
    for name in dict.fromkeys((*there, *wanted)):  # in the order of the fields
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
            f"{source.run_root} has no tokenizer, so nothing tells whether {dataset.path} "
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
    """The fields that determine a model's weights and what they do, with defaults filled in."""
    fields = {
        **dict(flatten(to_dict(model))),
        "n_kv_heads": model.kv_heads,
        "d_mlp": model.mlp_width,
        **dict(flatten({name: asdict(model.resolve_scale(name)) for name in SCALE_NAMES})),
    }
    return {name: value for name, value in fields.items() if name not in MAY_DIFFER}


def read_origin(run_dir: RunDir) -> Origin | None:
    """The model that the run in a folder began with; None if it began with random weights."""
    record = records.read(run_dir.env).get("init_from") if run_dir.env.is_file() else None
    if record is None:
        return None
    if not isinstance(record, dict):
        raise records.damaged(run_dir.env, "init_from is not a table")
    return Origin(
        records.field(record, "folder", str, run_dir.env),
        records.field(record, "checksum", str, run_dir.env),
    )


def origin_of_unsaved(run_dir: RunDir) -> Origin | None:
    """The same if the run has no checkpoint yet, else None."""
    saved = checkpoints.latest(run_dir.checkpoints) is not None
    return None if saved else read_origin(run_dir)


def check_same_origin(run_dir: RunDir, path: str | Path) -> None:
    """Refuse to resume a run that did not begin with the model at `path`."""
    origin, root = read_origin(run_dir), run_dir.root
    if origin is None:
        raise UserError(
            f"{root} did not begin with a model; leave out --init-from to continue it, "
            "or start over with another --out"
        )
    if os.path.realpath(path) not in (origin.folder, str(RunDir.around(origin.folder))):
        raise UserError(
            f"{root} began with {origin.folder}, not with {path}; leave out --init-from to "
            "continue it, or start over with another --out"
        )
