"""Curves for TensorBoard and Weights & Biases: both optional, both told the same numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from spherelm.config import RunConfig
from spherelm.config_io import to_dict
from spherelm.errors import UserError


class Tracker(Protocol):
    """Somewhere that curves are drawn."""

    def log(self, record: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


def open_trackers(run: RunConfig, tensorboard_folder: Path, start_step: int) -> list[Tracker]:
    """The trackers that the configuration asks for; TensorBoard only where it is installed."""
    trackers: list[Tracker] = []
    if run.train.tensorboard:
        with contextlib.suppress(ModuleNotFoundError):
            trackers.append(TensorBoard(tensorboard_folder, start_step))
    if run.train.wandb_project is not None:
        trackers.append(WeightsAndBiases(run, tensorboard_folder.parent))
    return trackers


class TensorBoard:
    """Event files; on resume, what an interrupted run wrote after its checkpoint is purged."""

    def __init__(self, folder: Path, start_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = start_step + 1 if start_step else None
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def log(self, record: Mapping[str, Any]) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run on Weights & Biases, named after the run directory and resumed with it."""

    def __init__(self, run: RunConfig, folder: Path) -> None:
        try:
            import wandb
        except ModuleNotFoundError:
            raise UserError(
                "train.wandb_project needs Weights & Biases: pip install 'spherelm[track]'"
            ) from None
        self._run = wandb.init(
            project=run.train.wandb_project,
            name=folder.name,
            id=folder.name,
            dir=str(folder),
            resume="allow",
            config=to_dict(run),
        )

    def log(self, record: Mapping[str, Any]) -> None:
        self._run.log(dict(_scalars(record)), step=record["step"])

    def close(self) -> None:
        self._run.finish()


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of metrics; a list is one curve per layer."""
    for name, value in record.items():
        if isinstance(value, list):
            yield from ((f"{name}/layer_{i}", v) for i, v in enumerate(value))
        elif isinstance(value, (int, float)) and name != "step":
            yield name, value
