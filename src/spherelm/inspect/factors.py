"""The learned factors of nGPT by layer: α_A, α_M, s_u, s_ν, s_qk, and s_z for all tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.distribution import Distribution, distribution_of, wide
from spherelm.model.block import NGPTBlock
from spherelm.model.transformer import Transformer

ALL = ("alpha_attn", "alpha_mlp", "s_u", "s_nu", "s_qk", "s_z")


@dataclass(frozen=True)
class Factor:
    """One kind of factor, as the forward pass uses it."""

    name: str
    start: float
    """Its value before training."""
    means: tuple[float, ...]
    """One per layer; a single one for s_z, which belongs to no layer."""
    stds: tuple[float, ...]
    """The spread within each layer."""
    all_layers: Distribution


def look_at_factors(model: Transformer) -> list[Factor]:
    """The factors of a model; GPT has none, except a gain s_qk if it normalizes q and k."""
    found: dict[str, list[Tensor]] = {}
    for name, values in _factors(model):
        found.setdefault(name, []).append(wide(values))
    return [
        Factor(
            name=name,
            start=model.config.resolve_scale(name).init,
            means=tuple(float(values.mean()) for values in found[name]),
            stds=tuple(float(values.std(correction=0)) for values in found[name]),
            all_layers=distribution_of(torch.cat(found[name])),
        )
        for name in ALL
        if name in found
    ]


def _factors(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Every vector of factors by its name, layer after layer."""
    for block in model.layers:
        if block.attention.s_qk is not None:
            yield "s_qk", block.attention.s_qk()
        if isinstance(block, NGPTBlock):
            alpha_A, alpha_M = block.eigen_learning_rates()
            yield "alpha_attn", alpha_A
            yield "alpha_mlp", alpha_M
            assert block.mlp.s_u is not None
            assert block.mlp.s_nu is not None
            yield "s_u", block.mlp.s_u()
            yield "s_nu", block.mlp.s_nu()
    if model.s_z is not None:
        yield "s_z", model.s_z()
