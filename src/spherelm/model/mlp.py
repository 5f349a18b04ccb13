"""MLP: SwiGLU of GPT and nGPT.

Shapes: B batch, T time, D d_model, F d_mlp. W_o_mlp is stored as the paper writes it, (F, D), and
applied as `x @ W_o_mlp`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from spherelm import ops
from spherelm.model.config import ModelConfig
from spherelm.model.scale import Scale
from spherelm.model.sphere import as_read


class MLP(nn.Module):
    """(u · SiLU(ν)) W_oMLP with u = h W_u and ν = h W_ν; nGPT scales u by s_u, ν by s_ν·sqrt(D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, d_model = config.mlp_width, config.d_model
        self.W_u = nn.Parameter(torch.empty(width, d_model))
        self.W_nu = nn.Parameter(torch.empty(width, d_model))
        self.W_o_mlp = nn.Parameter(torch.empty(width, d_model))
        ngpt = config.arch == "ngpt"
        self.s_u = Scale(width, config.resolve_scale("s_u")) if ngpt else None
        self.s_nu = Scale(width, config.resolve_scale("s_nu")) if ngpt else None

    def forward(self, h: Tensor) -> Tensor:
        """h: (B, T, D) -> (B, T, D)"""
        W_u, W_nu, W_o_mlp = [
            as_read(W, h.dtype, self.config.normalize_in_forward)
            for W in (self.W_u, self.W_nu, self.W_o_mlp)
        ]

        if self.s_u is not None and self.s_nu is not None:
            # (h W_u) · s_u = h (W_u · s_u): to scale F·D weights is cheaper than B·T·F activations.
            W_u = W_u * self.s_u()[:, None]
            W_nu = W_nu * (self.s_nu() * math.sqrt(self.config.d_model))[:, None]

        return ops.project_swiglu(h, W_u, W_nu) @ W_o_mlp
