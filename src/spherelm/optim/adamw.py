"""AdamW whose step ends on the sphere.

The optimizer owns the weights that are normalized: retraction is part of its step, on the very
tensors it updates, so that no training loop can forget it and no copy can drift. For a GPT it is
`torch.optim.AdamW` to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import nn

from spherelm.errors import UserError
from spherelm.kernels.reference import normalize
from spherelm.model.sphere import is_spherical, local_rows, matrices, retract_


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The paper's groups: matrices and factors.

    GPT decays its matrices; nGPT decays nothing, and its matrices are retracted after each step.
    """
    spherical = is_spherical(model)
    if spherical and weight_decay:
        raise UserError(
            f"weight_decay must be 0 for nGPT, whose weights have unit norm, not {weight_decay}"
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {
            "params": [p for p in trained if p.ndim == 2],
            "weight_decay": weight_decay,
            "on_sphere": spherical,
        },
        {
            "params": [p for p in trained if p.ndim != 2],
            "weight_decay": 0.0,
            "on_sphere": False,
        },
    ]


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` for a spherelm model, its matrices put back on the sphere in `step`."""

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        groups = [g for g in parameter_groups(model, weight_decay) if g["params"]]
        super().__init__(groups, lr=lr, betas=betas, eps=eps)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = super().step(closure)
        for group in self.param_groups:
            if group["on_sphere"]:
                for matrix in group["params"]:
                    rows = local_rows(matrix)
                    rows.copy_(normalize(rows))
        return loss


def attach_retraction(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Make any `torch.optim` optimizer of an nGPT end its steps on the sphere.

    The optimizer must update the model's own matrices: copies of them that it keeps elsewhere
    would stay unnormalized, a common bug the paper warns of, and are refused.
    """
    owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, matrix in matrices(model):
        if matrix.requires_grad and id(matrix) not in owned:
            raise UserError(
                f"the optimizer does not hold {name} itself; give it model.parameters(), "
                f"not copies, so that what it updates is what is normalized"
            )
    optimizer.register_step_post_hook(lambda *_: retract_(model))
