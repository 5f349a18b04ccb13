"""MLP: SwiGLU of GPT and nGPT.

Shapes: D d_model, F d_mlp. W_o_mlp is stored as the paper writes it, (F, D), and applied as
`x @ W_o_mlp`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from spherelm.model.config import ModelConfig
from spherelm.model.part import AUTO, Ops, Part, to_be_drawn
from spherelm.model.scale import Scale
from spherelm.model.sphere import as_read, mark_matrices
from spherelm.ops.interface import Operand
from spherelm.ops.reference import with_factors


class MLPWeights(NamedTuple):
    """The matrices with their factors, ready for their products."""

    W_u_nu: Operand
    W_o_mlp: Operand


class MLP(Part):
    """(u · SiLU(ν)) W_oMLP with u = h W_u and ν = h W_ν; nGPT scales u by s_u, ν by s_ν·sqrt(D)."""

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        super().__init__(config, ops)
        width, d_model = config.mlp_width, config.d_model
        self.W_u = to_be_drawn(width, d_model)
        self.W_nu = to_be_drawn(width, d_model)
        self.W_o_mlp = to_be_drawn(width, d_model)
        ngpt = config.arch == "ngpt"
        self.s_u = Scale(width, config.resolve_scale("s_u")) if ngpt else None
        self.s_nu = Scale(width, config.resolve_scale("s_nu")) if ngpt else None
        self.held = self.hold(forks=False)
        mark_matrices(self, on_sphere=ngpt)

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """s_u and s_ν·sqrt(D), the factors on the rows of W_u and W_ν: (F,) each; None in a GPT."""
        if self.s_u is None or self.s_nu is None:
            return None
        return self.s_u(), self.s_nu() * math.sqrt(self.config.d_model)

    def unscaled(self, dtype: torch.dtype) -> list[Tensor]:
        """W_u, W_ν and W_oMLP without factors, for a stream of `dtype`."""
        normalized = self.config.normalize_in_forward
        return [as_read(W, dtype, normalized) for W in (self.W_u, self.W_nu, self.W_o_mlp)]

    def matrices(self, dtype: torch.dtype) -> list[Tensor]:
        """W_u and W_ν with their factors, and W_oMLP, for a stream of `dtype`."""
        W_u, W_nu, W_o_mlp = self.unscaled(dtype)
        return [*with_factors((W_u, W_nu), self.factors()), W_o_mlp]

    def weights(self, dtype: torch.dtype) -> MLPWeights:
        """The weights for a stream of `dtype`."""
        W_u, W_nu, W_o_mlp = self.unscaled(dtype)
        held = self.held
        return MLPWeights(
            self.ops.operand(
                W_u, W_nu, factors=self.factors(), held=None if held is None else held.going_in
            ),
            self.ops.operand(W_o_mlp, held=None if held is None else held.coming_out),
        )

    def forward(self, h: Tensor) -> Tensor:
        """h: (..., D) -> (..., D)"""
        W_u_nu, W_o_mlp = self.weights(h.dtype)
        return self.ops.linear(self.ops.swiglu(h, W_u_nu), W_o_mlp)
