"""Rates by kind of parameter: E_input, E_output, the matrices of the blocks, and the factors.

A step of Adam is about as large as its rate in every component, whatever the gradient, so rates set
how fast kinds move relative to each other. Components of unit vectors are about 1/sqrt(d_model);
factors are stored at that size too, except s_u, s_nu and a GPT's gains, which are stored at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from spherelm.config import OptimConfig
from spherelm.model.transformer import Transformer

KINDS = ("E_input", "E_output", "blocks", "factors")
"""A GPT's factors are the gains of its norms; tied embeddings count as E_input."""


def given_rates(optim: OptimConfig) -> dict[str, float]:
    """Each kind's rate over `optim.lr`, from the configuration. Muon's rate for the blocks is not
    among them: its groups have it from the start."""
    own = {"E_input": optim.input_lr, "E_output": optim.output_lr, "factors": optim.factor_lr}
    return {kind: (own.get(kind) or optim.lr) / optim.lr for kind in KINDS}


def set_rates(
    optimizer: torch.optim.Optimizer, model: Transformer, rates: Mapping[str, float]
) -> None:
    """Split the optimizer's groups by kind, and give each its `relative_lr` and peak rate.

    To be called before the first step, since it changes the groups and so the order of the states.
    """
    kinds = {id(p): _kind(name, p) for name, p in model.named_parameters()}
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        relative = group.get("relative_lr", 1.0)
        for kind in KINDS:
            params = [p for p in group["params"] if kinds[id(p)] == kind]
            if params:
                rate = rates[kind]
                own = {"lr": rate * group["lr"], "relative_lr": rate * relative}
                groups.append({**group, **own, "params": params})
    optimizer.param_groups[:] = groups


def _kind(name: str, parameter: torch.Tensor) -> str:
    if parameter.ndim != 2:
        return "factors"
    return name if name in ("E_input", "E_output") else "blocks"
