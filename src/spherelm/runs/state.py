"""`TrainState`, with `save` and `load`: everything that must survive a restart.

Tensors (weights, the optimizer's moments) and a small JSON record: the step, how much data was
consumed, and the state of the random number generators. The learning rate follows from the step.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spherelm import records
from spherelm.config import RunConfig
from spherelm.config_io import to_dict
from spherelm.data.loader import Loader
from spherelm.distributed.processes import Processes
from spherelm.model.transformer import Transformer
from spherelm.ops.fp8.held import scaling_state
from spherelm.optim.build import Optimizer
from spherelm.optim.moments import collect_moments, give_moments
from spherelm.runs import checkpoint as checkpoints


@dataclass
class TrainState:
    """A run's model, optimizer and place in its data, and how far they have come."""

    run: RunConfig
    data: str
    """The fingerprint of its training data."""
    model: Transformer
    optimizer: Optimizer
    loader: Loader
    step: int = 0
    """Optimizer steps taken."""
    began: int = 0
    """The step that the run began at: not 0 if its model was imported."""
    val_loss: float | None = None
    """The newest validation loss, measured at step `evaluated_at`."""
    evaluated_at: int | None = None

    def save(
        self, folder: Path, processes: Processes, background: bool = False
    ) -> checkpoints.Writing:
        """Begin writing all of it to a checkpoint in `folder`."""
        record = {
            "config": to_dict(self.run),
            "began": self.began,
            "data": self.data,
            "loader": self.loader.state_dict(),
            "random": _random_state(),
            "val_loss": self.val_loss if self.evaluated_at == self.step else None,
        }
        tensors = self._tensors()
        return checkpoints.Writing(folder, self.step, tensors, record, processes, background)

    def load(self, checkpoint: Path, record: Mapping[str, Any]) -> None:
        """Continue from a verified checkpoint, whose state.json is `record`."""
        self.step, self.began = int(record["step"]), began(record)
        tensors = self._tensors()
        if is_imported(record):
            tensors = {name: t for name, t in tensors.items() if name.startswith("model.")}
        checkpoints.load_tensors(checkpoint, tensors)
        if not is_imported(record):
            give_moments(self.model, self.optimizer, tensors, self.step - self.began)
            _set_random_state(record["random"], checkpoint / "state.json")
            self.loader.load_state_dict(record["loader"])
        self.val_loss = record["val_loss"]

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors by name; the optimizer's are created if they do not exist yet.

        model.NAME for parameters and buffers, exp_avg.NAME and the like for the optimizer's,
        scaling.NAME for the scales of FP8 products.
        """
        tensors = {f"model.{name}": t.detach() for name, t in self.model.state_dict().items()}
        tensors |= {f"scaling.{name}": t for name, t in scaling_state(self.model).items()}
        return tensors | collect_moments(self.model, self.optimizer)


def is_imported(record: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is an imported model: no optimizer, no place in any data."""
    return "loader" not in record


def began(record: Mapping[str, Any]) -> int:
    """The step that the run of a checkpoint began at: 0, or that of an imported model."""
    return int(record["step"] if is_imported(record) else record.get("began", 0))


def _random_state() -> dict[str, str]:
    """The state of torch's generators, on the CPU and, if there is one, on this GPU."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: base64.b64encode(s.numpy().tobytes()).decode() for name, s in states.items()}


def _set_random_state(states: Mapping[str, Any], where: object) -> None:
    """Set the generators to a `_random_state`, which was read from the file `where`."""
    try:
        for name, encoded in states.items():
            state = torch.frombuffer(bytearray(base64.b64decode(encoded)), dtype=torch.uint8)
            if name == "cpu":
                torch.set_rng_state(state)
            elif torch.cuda.is_available():
                torch.cuda.set_rng_state(state)
    except (RuntimeError, TypeError, ValueError) as error:
        raise records.damaged(where, f"no generator has such a state ({error})") from None
