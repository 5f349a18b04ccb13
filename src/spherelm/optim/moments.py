"""An optimizer's moments by the names of the parameters, as a checkpoint stores them.

exp_avg.NAME and exp_avg_sq.NAME for Adam and its variants, momentum_buffer.NAME for Muon.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from spherelm.optim.build import Optimizer, parts

ADAM, MUON = ("exp_avg", "exp_avg_sq"), ("momentum_buffer",)


def _moments_of(part: torch.optim.Optimizer) -> tuple[str, ...]:
    return MUON if isinstance(part, torch.optim.Muon) else ADAM


def collect_moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """All moments by name; zeros where there are none yet."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    for part in parts(optimizer):
        for parameter in (p for group in part.param_groups for p in group["params"]):
            state = part.state.get(parameter, {})
            for moment in _moments_of(part):
                known = state.get(moment)
                made = torch.zeros_like(parameter.detach()) if known is None else known
                tensors[f"{moment}.{names[id(parameter)]}"] = made
    return tensors


def give_moments(
    model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor], step: int
) -> None:
    """Restore the moments of an optimizer that has taken `step` steps."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for part in parts(optimizer):
        moments = _moments_of(part)
        held = [parameter for group in part.param_groups for parameter in group["params"]]
        state_dict = part.state_dict()
        state_dict["state"] = {
            index: {m: tensors[f"{m}.{names[id(parameter)]}"] for m in moments}
            for index, parameter in enumerate(held)
        }
        if moments is ADAM:
            for state in state_dict["state"].values():
                state["step"] = torch.tensor(float(step), dtype=torch.float32)
        part.load_state_dict(state_dict)
