"""The two blocks: the columns of the paper's Table 1, side by side.

    Transformer                      Normalized Transformer
    h_A ← ATTN(RMSNorm(h))           h_A ← Norm(ATTN(h))
    h   ← h + h_A                    h   ← Norm(h + α_A (h_A − h))
    h_M ← MLP(RMSNorm(h))            h_M ← Norm(MLP(h))
    h   ← h + h_M                    h   ← Norm(h + α_M (h_M − h))

The two steps of the right column are one operation, since both norms need one pass over h; so are
an addition of the left column and the RMSNorm after it.

Shapes: h is (B, T, D) between blocks and (B·T, D) inside: where nothing stands between a product
and an addition to it, forward or backward, torch.compile makes one kernel of the two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spherelm import ops
from spherelm.model.attention import Attention
from spherelm.model.config import ModelConfig
from spherelm.model.mlp import MLP
from spherelm.model.scale import Scale

UPDATES = {
    "lerp": ops.residual_lerp,  # Norm(h + α (Norm(y) − h))
    "slerp": ops.residual_slerp,  # along the geodesic from h to Norm(y)
    "riemannian": ops.residual_riemannian,  # Norm(h − α (h (hᵀ Norm(y)) − Norm(y)))
}


class RMSNorm(nn.Module):
    """RMSNorm with a learned gain, starting at 1."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.gain.fill_(1.0)

    def forward(self, h: Tensor) -> Tensor:
        return ops.rms_norm(h, self.gain)


class GPTBlock(nn.Module):
    """The left column of Table 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_attn = RMSNorm(config.d_model)
        self.attention = Attention(config)
        self.norm_mlp = RMSNorm(config.d_model)
        self.mlp = MLP(config)

    def forward(self, h: Tensor, rope: Tensor, mask: Tensor | None = None) -> Tensor:
        shape, h = h.shape, h.flatten(0, 1)
        h, normed = ops.branch_rms_norm(h, self.norm_attn.gain)  # h, RMSNorm(h)
        h_A = self.attention(normed.view(shape), rope, mask).flatten(0, 1)
        h, normed = ops.add_rms_norm(h, h_A, self.norm_mlp.gain)  # h + h_A, RMSNorm(h + h_A)
        h_M = self.mlp(normed)
        return (h + h_M).view(shape)


class NGPTBlock(nn.Module):
    """The right column of Table 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.alpha_attn = Scale(config.d_model, config.resolve_scale("alpha_attn"))
        self.mlp = MLP(config)
        self.alpha_mlp = Scale(config.d_model, config.resolve_scale("alpha_mlp"))
        self.signed_alpha = config.signed_alpha
        self.update = UPDATES[config.update]

    def eigen_learning_rates(self) -> tuple[Tensor, Tensor]:
        """α_A and α_M as the update uses them: |α| unless they may be negative.  (D,) each"""
        alpha_A, alpha_M = self.alpha_attn(), self.alpha_mlp()
        return (alpha_A, alpha_M) if self.signed_alpha else (alpha_A.abs(), alpha_M.abs())

    def forward(self, h: Tensor, rope: Tensor, mask: Tensor | None = None) -> Tensor:
        alpha_A, alpha_M = self.eigen_learning_rates()
        shape, h = h.shape, h.flatten(0, 1)
        h_A = self.attention(h.view(shape), rope, mask).flatten(0, 1)
        h = self.update(h, h_A, alpha_A)  # Norm(h + α_A (Norm(h_A) − h))
        h_M = self.mlp(h)
        return self.update(h, h_M, alpha_M).view(shape)  # Norm(h + α_M (Norm(h_M) − h))


Block = GPTBlock | NGPTBlock
