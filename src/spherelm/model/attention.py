"""ATTN: multi-head attention of GPT and nGPT.

Shapes: B batch, T time, D d_model, H heads, G heads of k and v, K head dimension.
All four matrices are lists of vectors in R^D, their rows, which nGPT normalizes. That includes W_o:
it is stored as the paper writes it and applied as `x @ W_o`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spherelm.model.attend import CAUSAL, FULL, Attend
from spherelm.model.config import ModelConfig
from spherelm.model.part import AUTO, Ops, Part, to_be_drawn
from spherelm.model.rope import check_table
from spherelm.model.scale import Scale
from spherelm.model.sphere import as_read, mark_matrices
from spherelm.ops.interface import Operand
from spherelm.ops.reference import heads_on_sphere, rotate


class AttentionWeights(NamedTuple):
    """The matrices, ready for their products, and s_qk."""

    W_qkv: Operand
    W_o: Operand
    s_qk: Tensor | None
    kv_heads: int


class Attention(Part):
    """softmax(q kᵀ · softmax_scale + M) v W_o; q and k rotated, and in nGPT unit vectors · s_qk."""

    factors_on_q = False
    """Whether q takes both factors, s_qk², so that the k of a cache are unit vectors."""

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        super().__init__(config, ops)
        d_q, d_kv = config.n_heads * config.d_k, config.kv_heads * config.d_k
        self.W_q = to_be_drawn(d_q, config.d_model)
        self.W_k = to_be_drawn(d_kv, config.d_model)
        self.W_v = to_be_drawn(d_kv, config.d_model)
        self.W_o = to_be_drawn(d_q, config.d_model)
        self.s_qk = Scale(d_kv, config.resolve_scale("s_qk")) if config.has_s_qk else None
        self.held = self.hold(forks=True)
        mark_matrices(self, on_sphere=config.arch == "ngpt")

    def unscaled(self, dtype: torch.dtype) -> list[Tensor]:
        """Same as `matrices`: no factors multiply these."""
        return self.matrices(dtype)

    def matrices(self, dtype: torch.dtype) -> list[Tensor]:
        """W_q, W_k, W_v and W_o for products with a stream of `dtype`."""
        normalized = self.config.normalize_in_forward
        return [as_read(W, dtype, normalized) for W in (self.W_q, self.W_k, self.W_v, self.W_o)]

    def weights(self, dtype: torch.dtype) -> AttentionWeights:
        """The weights for a stream of `dtype`."""
        W_q, W_k, W_v, W_o = self.matrices(dtype)
        held = self.held
        return AttentionWeights(
            self.ops.operand(W_q, W_k, W_v, held=None if held is None else held.going_in),
            self.ops.operand(W_o, held=None if held is None else held.coming_out),
            None if self.s_qk is None else self.s_qk(),
            kv_heads=W_k.shape[0] // self.config.d_k,
        )

    def forward(self, h: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        """h: (B, T, D), or (B·T, D) as inside a block; rope: (2, T, K/2), or (2, B, T, K/2) if each
        token has its own position -> same shape as h"""
        W_qkv, W_o, s_qk, kv_heads = self.weights(h.dtype)
        sequences = h if h.ndim == 3 else h.unflatten(0, (-1, rope.shape[-2]))
        check_table(rope, sequences.shape[1], self.config.d_k)

        # q, k: Norm(RoPE(h W)) · s_qk for nGPT and a GPT with QK-norm, RoPE(h W) for GPT
        q, k, v = self.ops.qkv(
            sequences, W_qkv, rope, s_qk, kv_heads, self.config.qk_norm, self.factors_on_q
        )
        heads = attend(self.ops, q, k, v, self.config.softmax_scale)  # (B, T, H, K)
        return self.ops.linear(heads.flatten(-2), W_o).view(h.shape)

    def cross(
        self,
        h: Tensor,
        source: Tensor,
        attend: Attend = FULL,
        rope: Tensor | None = None,
        source_rope: Tensor | None = None,
    ) -> Tensor:
        """Cross-attention, as of a decoder to an encoder: q from h, k and v from `source`.

        A sequence whose RoPE table is None is not rotated. h: (B, T, D), source: (B, S, D), rope:
        (2, T, K/2), source_rope: (2, S, K/2) -> (B, T, D)
        """
        for table, x in ((rope, h), (source_rope, source)):
            if table is not None:
                check_table(table, x.shape[1], self.config.d_k)
        W_q, W_k, W_v, W_o = self.matrices(h.dtype)
        q, k, v = (
            (x @ W.t()).unflatten(-1, (-1, self.config.d_k))
            for x, W in ((h, W_q), (source, W_k), (source, W_v))
        )
        kv_heads = k.shape[-2]
        if self.s_qk is not None:
            s_qk, norm = self.s_qk(), self.config.qk_norm
            q = heads_on_sphere(q, rope, s_qk, kv_heads, norm)
            k = heads_on_sphere(k, source_rope, s_qk, kv_heads, norm)
        else:
            q = q if rope is None else rotate(q, rope)
            k = k if source_rope is None else rotate(k, source_rope)
        heads = attend(self.ops, q, k, v, self.config.softmax_scale)
        return self.ops.linear(heads.flatten(-2), self.ops.operand(W_o))
