"""nuGPT's learning rates (arXiv 2604.27077, read in a summary): one rate for all sizes.

With m the width over that of a base model, and t the steps over its steps, the rate of `optim.lr`,
tuned at the base, becomes

    E_input              lr · m^−1/2 · t^−1/3
    matrices of blocks   lr · m^−3/4 · t^−1/3
    E_output             lr · m^−3/4 · t^−1/3 / 2
    factors              lr · t^−1/3

Its starting values (alpha 0.05 over the ratio of depths, s_z sqrt(m)) are fields of the model.
"""

from __future__ import annotations

from typing import Any

import torch

from spherelm.config import OptimConfig
from spherelm.model.transformer import Transformer


def relative_rates(width: float, steps: float) -> dict[str, float]:
    """Each kind's rate over `optim.lr`, for the ratios of width and of steps."""
    long = steps ** (-1 / 3)
    return {
        "E_input": width**-0.5 * long,
        "blocks": width**-0.75 * long,
        "E_output": 0.5 * width**-0.75 * long,
        "factors": long,
    }


def set_rates(
    optimizer: torch.optim.Optimizer, model: Transformer, optim: OptimConfig, steps: int
) -> None:
    """Divide the optimizer's groups by kind, and give each its `relative_lr` and highest rate.

    To be called before the first step: the groups change, and with them the order of states.
    """
    width = model.config.d_model / (optim.base_d_model or model.config.d_model)
    rates = relative_rates(width, steps / (optim.base_steps or steps))
    kinds = {id(p): _kind(name, p) for name, p in model.named_parameters()}
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        relative = group.get("relative_lr", 1.0)
        for kind, rate in rates.items():
            params = [p for p in group["params"] if kinds[id(p)] == kind]
            if params:
                own = {"lr": rate * group["lr"], "relative_lr": rate * relative}
                groups.append({**group, **own, "params": params})
    optimizer.param_groups[:] = groups


def _kind(name: str, parameter: torch.Tensor) -> str:
    if parameter.ndim != 2:
        return "factors"
    return name if name in ("E_input", "E_output") else "blocks"
