"""The inference twin of a model: scales folded into the matrices, keys and values cached.

What a trained nGPT multiplies at every token is multiplied once, when this model is made:

    s_u, s_ν·sqrt(D)   into W_u, W_ν           rows scaled
    s_z                into E_output            rows scaled
    s_qk on q and k    s_qk² onto q             (q·s)ᵀ(k·s) = (q·s²)ᵀk, after RoPE and Norm
    |α|                as the update uses it

so that only α and s_qk² are left beside the matrices. W_q, W_k, W_v are one matrix, and so are W_u
and W_ν; W_o and W_oMLP are turned over, a row for each output: decoding waits for launches and for
the bytes of the weights, and a product with one token reads rows best. A GPT passes through with
its gains as they are.

The cache holds keys as attention needs them, rotated and normalized; their scale is on q.

Shapes: B batch, T time, D d_model, H heads, G heads of k and v, K head dimension, F d_mlp,
V vocabulary, S length of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spherelm import ops
from spherelm.model.block import GPTBlock, NGPTBlock
from spherelm.model.config import ModelConfig
from spherelm.model.rope import rope_table
from spherelm.model.transformer import Transformer
from spherelm.ops.reference import at_least_float32

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q (B, T, H, K), k and v (B, T, G, K) -> what the heads read: (B, T, H, K)"""


class Operations(NamedTuple):
    """How a block's operations are executed."""

    rms_norm: Callable[[Tensor, Tensor], Tensor]
    update: Callable[[Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor, Tensor], Tensor]
    """h (B, T, D), W_u over W_ν (2F, D) -> (B, T, F)"""


class Layer(NamedTuple):
    """The tensors of one block; those of the other architecture are None."""

    W_qkv: Tensor  # ((H + 2G)·K, D)
    W_o: Tensor  # (D, H·K)
    W_u_nu: Tensor  # (2F, D)
    W_o_mlp: Tensor  # (D, F)
    q_factors: Tensor | None  # s_qk², (H, K)
    alpha_A: Tensor | None  # (D,)
    alpha_M: Tensor | None  # (D,)
    gain_attn: Tensor | None  # (D,)
    gain_mlp: Tensor | None  # (D,)


@dataclass(frozen=True)
class Cache:
    """Keys and values of all layers: (L, B, G, S, K) each."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        return self.keys.shape[3]


class FoldedModel:
    """Logits of the next token, from a whole prompt (`prefill`) or one token more (`decode`)."""

    def __init__(self, model: Transformer, dtype: torch.dtype | None = None) -> None:
        """Fold a copy of `model`; products and the cache are in `dtype`, by default the model's."""
        self.config: ModelConfig = model.config
        self.device = model.E_input.device
        self.dtype = model.dtype if dtype is None else dtype
        with torch.no_grad():
            self.layers = [self._fold(block) for block in model.blocks]
            self.E_input = self._matrix(model.E_input).to(self.dtype, copy=True)
            self.E_output = self._fold_output(model)
            self.final_gain = (
                None if model.final_norm is None else model.final_norm.gain.detach().clone()
            )
        self.rope = torch.empty(2, 0, self.config.d_k // 2, device=self.device)
        update = f"residual_{self.config.update}"
        self._many_tokens = Operations(
            ops.rms_norm,
            getattr(ops, update),
            lambda h, W_u_nu: ops.project_swiglu(h, *W_u_nu.chunk(2)),
        )
        # With one token there is nothing for a kernel to win; the compiler fuses what it can see.
        self._one_token = Operations(
            ops.reference.rms_norm,
            getattr(ops.reference, update),
            lambda h, W_u_nu: ops.reference.swiglu(*F.linear(h, W_u_nu).chunk(2, dim=-1)),
        )

    def _matrix(self, matrix: Tensor) -> Tensor:
        """The matrix as the forward pass uses it, at least in float32."""
        matrix = at_least_float32(matrix.detach())
        return ops.normalize(matrix) if self.config.normalize_in_forward else matrix

    def _fold_output(self, model: Transformer) -> Tensor:
        if model.E_output is None and model.s_z is None:
            return self.E_input
        E_output = self._matrix(model.E_input if model.E_output is None else model.E_output)
        if model.s_z is not None:
            E_output = _scale_rows(E_output, model.s_z())
        return E_output.to(self.dtype, copy=True)

    def _fold(self, block: nn.Module) -> Layer:
        assert isinstance(block, (GPTBlock, NGPTBlock))
        attention, mlp = block.attention, block.mlp
        q, k, v, o = map(self._matrix, (attention.W_q, attention.W_k, attention.W_v, attention.W_o))
        u, nu, o_mlp = map(self._matrix, (mlp.W_u, mlp.W_nu, mlp.W_o_mlp))
        q_factors = alpha_A = alpha_M = gain_attn = gain_mlp = None
        if attention.s_qk is not None:  # nGPT, or a GPT with QK-norm
            s_qk = at_least_float32(attention.s_qk()).view(self.config.kv_heads, -1)  # (G, K)
            shared_by = self.config.n_heads // self.config.kv_heads
            q_factors = s_qk.square().repeat_interleave(shared_by, dim=0)
        if isinstance(block, NGPTBlock):
            assert mlp.s_u is not None
            assert mlp.s_nu is not None
            u = _scale_rows(u, mlp.s_u())
            nu = _scale_rows(nu, mlp.s_nu() * math.sqrt(self.config.d_model))
            alpha_A, alpha_M = (a.detach().clone() for a in block.eigen_learning_rates())
        else:
            gain_attn = block.norm_attn.gain.detach().clone()
            gain_mlp = block.norm_mlp.gain.detach().clone()
        return Layer(
            torch.cat((q, k, v)).to(self.dtype),
            o.to(self.dtype).T.contiguous(),
            torch.cat((u, nu)).to(self.dtype),
            o_mlp.to(self.dtype).T.contiguous(),
            q_factors,
            alpha_A,
            alpha_M,
            gain_attn,
            gain_mlp,
        )

    # ------------------------------------------------------------------ cache

    def cache_bytes(self, batch: int, length: int) -> int:
        """Memory of a cache for `batch` sequences of `length` tokens."""
        c = self.config
        numbers = 2 * c.n_layers * batch * c.kv_heads * length * c.d_k
        return numbers * self.dtype.itemsize

    def new_cache(self, batch: int, length: int) -> Cache:
        """An empty cache, zero where nothing is yet; RoPE reaches as far as it does."""
        c = self.config
        shape = (c.n_layers, batch, c.kv_heads, length, c.d_k)
        self._extend_rope(length)
        return Cache(
            torch.zeros(shape, dtype=self.dtype, device=self.device),
            torch.zeros(shape, dtype=self.dtype, device=self.device),
        )

    def _extend_rope(self, length: int) -> None:
        if length > self.rope.shape[1]:
            wide = torch.float64 if self.dtype == torch.float64 else torch.float32
            self.rope = rope_table(
                length, self.config.d_k, self.config.rope_base, self.device, wide
            )

    # ------------------------------------------------------------------ forward

    @torch.no_grad()
    def prefill(self, tokens: Tensor, cache: Cache, last: Tensor | None = None) -> Tensor:
        """Run whole prompts, and keep their keys and values.

        Prompts shorter than T are padded on the right with any token; causality hides the padding,
        and `decode` overwrites its keys.

        tokens: (B, T), last: (B,) position of each prompt's last token -> logits (B, V) there, or
        (B, T, V) at all positions where `last` is not given.
        """
        length = tokens.shape[1]
        rope = self.rope[:, :length]
        h = F.embedding(tokens, self.E_input)  # (B, T, D)
        for i, layer in enumerate(self.layers):

            def attend(q: Tensor, k: Tensor, v: Tensor, i: int = i) -> Tensor:
                cache.keys[i, :, :, :length] = k.transpose(1, 2)
                cache.values[i, :, :, :length] = v.transpose(1, 2)
                return ops.attend(q, k, v, None, self.config.softmax_scale)

            h = block(layer, h, rope, attend, self.config, self._many_tokens)
        if last is not None:
            h = h[torch.arange(h.shape[0], device=h.device), last]  # (B, D)
        return self._logits(h, self._many_tokens)

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, cache: Cache, span: int) -> Tensor:
        """One token more for each sequence, wherever each of them is.

        The B sequences stand in the place of time: each token has its own position, and attends to
        its own sequence's cache, of which the first `span` entries are looked at.

        tokens: (B,), positions: (B,) < span -> logits (B, V)
        """
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        rope = self.rope[:, positions]  # (2, B, K/2)
        reach = torch.arange(span, device=tokens.device)
        mask = (reach <= positions[:, None])[:, None, None]  # (B, 1, 1, span)
        h = F.embedding(tokens, self.E_input)[None]  # (1, B, D)
        for i, layer in enumerate(self.layers):
            h = self.decode_block(
                layer, h, rope, cache.keys[i], cache.values[i], rows, positions, mask
            )
        return self._logits(h[0], self._one_token)

    def decode_block(
        self,
        layer: Layer,
        h: Tensor,
        rope: Tensor,
        keys: Tensor,
        values: Tensor,
        rows: Tensor,
        positions: Tensor,
        mask: Tensor,
    ) -> Tensor:
        """One block of `decode`: a function of tensors, so that one compilation serves them all."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys[rows, :, positions] = k[0]  # (B, G, K)
            values[rows, :, positions] = v[0]
            # The H/G queries that share a key head stand in the place of time.
            grouped = q[0].unflatten(1, (self.config.kv_heads, -1))  # (B, G, H/G, K)
            span = mask.shape[-1]
            heads = F.scaled_dot_product_attention(
                grouped,
                keys[:, :, :span],
                values[:, :, :span],
                attn_mask=mask,
                scale=self.config.softmax_scale,
            )
            return heads.flatten(1, 2)[None]

        return block(layer, h, rope, attend, self.config, self._one_token)

    def _logits(self, h: Tensor, ops: Operations) -> Tensor:
        if self.final_gain is not None:
            h = ops.rms_norm(h, self.final_gain)
        return at_least_float32(F.linear(h, self.E_output))


def block(
    layer: Layer, h: Tensor, rope: Tensor, attend: Attend, config: ModelConfig, ops: Operations
) -> Tensor:
    """A block of either architecture: the columns of `spherelm.model.block`.  (B, T, D) -> same"""
    if layer.alpha_A is None:
        assert layer.gain_attn is not None
        assert layer.gain_mlp is not None
        h = h + attention(layer, ops.rms_norm(h, layer.gain_attn), rope, attend, config)
        return h + mlp(layer, ops.rms_norm(h, layer.gain_mlp), ops)
    assert layer.alpha_M is not None
    h = ops.update(h, attention(layer, h, rope, attend, config), layer.alpha_A)
    return ops.update(h, mlp(layer, h, ops), layer.alpha_M)


def attention(layer: Layer, h: Tensor, rope: Tensor, attend: Attend, config: ModelConfig) -> Tensor:
    """ATTN of Table 1 with s_qk² on q alone.  (B, T, D) -> (B, T, D)"""
    heads, kv_heads = config.n_heads, config.kv_heads
    qkv = F.linear(h, layer.W_qkv).unflatten(-1, (-1, config.d_k))  # (B, T, H + 2G, K)
    qk, v = qkv[..., : heads + kv_heads, :], qkv[..., heads + kv_heads :, :]
    qk = ops.reference.rotate(qk, rope)
    if layer.q_factors is not None and config.qk_norm:
        qk = ops.reference.normalize(qk)
    q, k = qk[..., :heads, :], qk[..., heads:, :]
    if layer.q_factors is not None:
        q = (q * layer.q_factors).to(q.dtype)
    return F.linear(attend(q, k, v).flatten(-2), layer.W_o)


def mlp(layer: Layer, h: Tensor, ops: Operations) -> Tensor:
    """MLP of Table 1, its scales in the matrices.  (B, T, D) -> (B, T, D)"""
    return F.linear(ops.swiglu(h, layer.W_u_nu), layer.W_o_mlp)


def _scale_rows(matrix: Tensor, factors: Tensor) -> Tensor:
    return matrix * factors.detach().to(matrix.dtype)[:, None]
