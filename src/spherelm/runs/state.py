"""What must survive a restart, in one place.

Tensors (weights, the optimizer's moments) and a small JSON record: the step, how much data was
consumed, and the state of the random number generators. The learning rate follows from the step.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spherelm import records
from spherelm.model.transformer import Transformer
from spherelm.optim.build import Optimizer
from spherelm.optim.moments import collect_moments, give_moments


def collect_tensors(model: Transformer, optimizer: Optimizer) -> dict[str, Tensor]:
    """All tensors of a run by name, those of the optimizer made if they do not exist yet.

    model.NAME for parameters and buffers, exp_avg.NAME and the like for what the optimizer keeps.
    """
    tensors = {f"model.{name}": tensor.detach() for name, tensor in model.state_dict().items()}
    return tensors | collect_moments(model, optimizer)


def restore_tensors(
    model: Transformer, optimizer: Optimizer, tensors: Mapping[str, Tensor], step: int
) -> None:
    """Give the optimizer its moments back; the model's tensors were filled in place."""
    give_moments(model, optimizer, tensors, step)


def collect_random_state() -> dict[str, str]:
    """The generators of torch on the CPU and, where there is one, on this GPU."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: base64.b64encode(s.numpy().tobytes()).decode() for name, s in states.items()}


def restore_random_state(states: Mapping[str, Any], where: object) -> None:
    """Set the generators to what `collect_random_state` returned, as it was read from `where`."""
    try:
        for name, encoded in states.items():
            state = torch.frombuffer(bytearray(base64.b64decode(encoded)), dtype=torch.uint8)
            if name == "cpu":
                torch.set_rng_state(state)
            elif torch.cuda.is_available():
                torch.cuda.set_rng_state(state)
    except (RuntimeError, TypeError, ValueError) as error:
        raise records.damaged(where, f"no generator has such a state ({error})") from None
