"""GatedAdamW: AdamW with its small steps made smaller (Training nGPT, arXiv 2608.01284).

    d = sqrt(v̂) + eps        γ = sigmoid(a · log(d / gate_eps))        step: lr · γ · m̂ / d

With a = 1 this is Adam with gate_eps as its epsilon; with the source's a = 0.5 the gate closes more
slowly. The source's gate_eps is not known to us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor, nn

from spherelm.errors import UserError
from spherelm.model.sphere import local_rows
from spherelm.ops.reference import normalize
from spherelm.optim.adamw import multiply_gradients, parameter_groups


class GatedAdamW(torch.optim.Optimizer):
    """GatedAdamW for a spherelm model; `step` puts the matrices of an nGPT back on the sphere."""

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        gate_exponent: float = 0.5,
        gate_eps: float = 1e-6,
    ) -> None:
        gate = {"gate_exponent": gate_exponent, "gate_eps": gate_eps}
        groups = parameter_groups(model, weight_decay)
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, **gate})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Accepts only the groups it is built with, which say whether they are on the sphere."""
        if "on_sphere" not in param_group:
            raise UserError(
                "GatedAdamW takes the parameters of its model when it is built, and no groups "
                "after that: build a new one, or use spherelm.AdamW, which does"
            )
        super().add_param_group(param_group)

    def scale_gradients(self, factor: Tensor) -> None:
        """Multiply all gradients by `factor`, a scalar on the device: clipping."""
        multiply_gradients(self, factor)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, group)
        return loss

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:  # the names of torch.optim.AdamW, so that checkpoints are the same
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["step"] += 1
        assert p.grad is not None
        rows, g, m, v = map(local_rows, (p, p.grad, state["exp_avg"], state["exp_avg_sq"]))
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        step = float(state["step"])
        d = (v / (1 - beta2**step)).sqrt_().add_(group["eps"])
        gate = torch.sigmoid((d / group["gate_eps"]).log_().mul_(group["gate_exponent"]))
        rows.mul_(1 - group["lr"] * group["weight_decay"])
        size = group["lr"] / (1 - beta1**step)
        rows.addcdiv_(gate.mul_(m), d, value=-size)
        if group["on_sphere"]:
            rows.copy_(normalize(rows))
