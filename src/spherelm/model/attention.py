"""ATTN: causal multi-head self-attention of GPT and nGPT.

Shapes: B batch, T time, D d_model, H heads, G heads of k and v, K head dimension.
All four matrices are lists of vectors in R^D; W_o is stored as the paper writes it and applied as
`x @ W_o`, so its rows, too, are what nGPT normalizes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spherelm import ops
from spherelm.model.config import ModelConfig
from spherelm.model.scale import Scale
from spherelm.model.sphere import as_read


class Attention(nn.Module):
    """softmax(q kᵀ · softmax_scale + M) v W_o; q and k are rotated, and in nGPT on the sphere."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d_q, d_kv = config.n_heads * config.d_k, config.kv_heads * config.d_k
        self.W_q = nn.Parameter(torch.empty(d_q, config.d_model))
        self.W_k = nn.Parameter(torch.empty(d_kv, config.d_model))
        self.W_v = nn.Parameter(torch.empty(d_kv, config.d_model))
        self.W_o = nn.Parameter(torch.empty(d_q, config.d_model))
        self.s_qk = Scale(d_kv, config.resolve_scale("s_qk")) if config.has_s_qk else None

    def forward(self, h: Tensor, rope: Tensor, mask: Tensor | None = None) -> Tensor:
        """h: (B, T, D), rope: (2, T, K/2), or (2, B, T, K/2) where tokens have positions of their
        own, mask: (B, 1, T, T) true where allowed -> (B, T, D)"""
        W_q, W_k, W_v, W_o = [
            as_read(W, h.dtype, self.config.normalize_in_forward)
            for W in (self.W_q, self.W_k, self.W_v, self.W_o)
        ]

        # q, k: Norm(RoPE(h W)) · s_qk for nGPT and a GPT with QK-norm, RoPE(h W) for GPT
        s_qk = None if self.s_qk is None else self.s_qk()
        q, k, v = ops.project_qkv(h, W_q, W_k, W_v, rope, s_qk, self.config.qk_norm)
        heads = ops.attend(q, k, v, mask, self.config.softmax_scale)  # (B, T, H, K)
        return heads.flatten(-2) @ W_o
