"""The optimizer that a configuration describes, with the recipes it enables."""

from __future__ import annotations

import torch

from spherelm.config import OptimConfig
from spherelm.model.transformer import Transformer
from spherelm.optim.adamw import AdamW
from spherelm.optim.muon import MuonAndAdamW
from spherelm.optim.rates import given_rates, set_rates
from spherelm.optim.recipes.angle_cap import cap_angles
from spherelm.optim.recipes.gated_adamw import GatedAdamW
from spherelm.optim.recipes.nugpt_rates import nugpt_rates

Optimizer = AdamW | MuonAndAdamW | GatedAdamW
"""All have `param_groups`, `zero_grad`, `scale_gradients` and `step`; a group's rate is the
schedule's times its `relative_lr`, if it has one."""


def parts(optimizer: Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    """The torch optimizers that share the parameters, usually one."""
    return optimizer.parts if isinstance(optimizer, MuonAndAdamW) else (optimizer,)


def build_optimizer(model: Transformer, optim: OptimConfig, steps: int) -> Optimizer:
    """The optimizer of a run of `steps` steps."""
    optimizer = _plain(model, optim)
    rates = given_rates(optim)
    if optim.lr_groups == "nugpt":
        ours = nugpt_rates(model.config.d_model, steps, optim)
        rates = {kind: rate * ours[kind] for kind, rate in rates.items()}
    if set(rates.values()) != {1.0}:
        for part in parts(optimizer):
            set_rates(part, model, rates)
    if optim.angle_cap is not None:
        cap_angles(parts(optimizer), model, optim.angle_cap)
    return optimizer


def _plain(model: Transformer, optim: OptimConfig) -> Optimizer:
    if optim.algorithm == "muon":
        return MuonAndAdamW(model, optim)
    betas, decay = (optim.beta1, optim.beta2), optim.weight_decay
    if optim.algorithm == "gated_adamw":
        return GatedAdamW(
            model,
            optim.lr,
            betas=betas,
            eps=optim.eps,
            weight_decay=decay,
            gate_exponent=optim.gate_exponent,
            gate_eps=optim.gate_eps,
        )
    return AdamW(model, lr=optim.lr, betas=betas, eps=optim.eps, weight_decay=decay)
