"""What must survive a restart, in one place.

Tensors (weights, the optimizer's moments) and a small JSON record: the step, how much data was consumed, and
the state of the random number generators. The learning rate follows from the step.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spherelm import records
from spherelm.model.transformer import Transformer
from spherelm.optim.build import Optimizer, parts

MOMENTS = ("exp_avg", "exp_avg_sq")
MUON_MOMENTS = ("momentum_buffer",)


def _parts(optimizer: Optimizer) -> list[tuple[torch.optim.Optimizer, tuple[str, ...]]]:
    """The optimizers that share the parameters, each with the names of its moments."""
    return [
        (part, MUON_MOMENTS if isinstance(part, torch.optim.Muon) else MOMENTS)
        for part in parts(optimizer)
    ]


def collect_tensors(model: Transformer, optimizer: Optimizer) -> dict[str, Tensor]:
    """All tensors of a run by name, those of the optimizer made if they do not exist yet.

    model.NAME for parameters and buffers, exp_avg.NAME and exp_avg_sq.NAME for Adam's moments,
    momentum_buffer.NAME for Muon's.
    """
    tensors = {f"model.{name}": tensor.detach() for name, tensor in model.state_dict().items()}
    owner = {
        id(parameter): (part, moments)
        for part, moments in _parts(optimizer)
        for group in part.param_groups
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part, moments = owner[id(parameter)]
            state = part.state.get(parameter, {})
            for moment in moments:
                known = state.get(moment)
                tensors[f"{moment}.{name}"] = (
                    torch.zeros_like(parameter.detach()) if known is None else known
                )
    return tensors


def restore_tensors(
    model: Transformer, optimizer: Optimizer, tensors: Mapping[str, Tensor], step: int
) -> None:
    """Give the optimizer its moments back; the model's tensors were filled in place."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for part, moments in _parts(optimizer):
        state_dict = part.state_dict()
        state_dict["state"] = {}
        index = 0
        for group in part.param_groups:
            for parameter in group["params"]:
                state = {m: tensors[f"{m}.{names[id(parameter)]}"] for m in moments}
                if moments is MOMENTS:
                    state["step"] = torch.tensor(float(step), dtype=torch.float32)
                state_dict["state"][index] = state
                index += 1
        part.load_state_dict(state_dict)


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
