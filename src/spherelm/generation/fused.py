"""A decode step of one sequence in five kernels per block, for CUDA.

For one token a product reads its matrix once and computes almost nothing, so the way to save time
is to launch fewer kernels: each costs about two microseconds however little it does. What a block
does between its products is short enough for every program of the next product to repeat it:

    1  h ← update of the previous block; q, k, v = h W_qkv       a program per few rows
    2  RoPE, Norm, s_qk²; attention over a part of the cache     a program per head and part
    3  join the parts; y = heads W_o                             a program per few rows
    4  h ← update by y; u · SiLU(ν) of h W_u, h W_ν              a program per few rows
    5  y = ... W_oMLP                                            a program per few rows

The stream h is in float32, in two alternating buffers: all programs read one while the first of
them writes the other.

The kernels are in `spherelm.ops.triton.decode`; this file launches them. Shapes as in `cached`.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from spherelm.generation.cached import Cache
from spherelm.model.block import Block, GPTBlock, NGPTBlock
from spherelm.model.fold import FoldedTransformer
from spherelm.ops.triton.decode import (
    attention_kernel,
    join_kernel,
    product_kernel,
    project_kernel,
)

_SHAPES = {
    "qkv": (8192, 2),
    "o": (16384, 8),
    "gated": (8192, 1),
    "o_mlp": (16384, 8),
    "logits": (16384, 4),
}
"""For each product: how many numbers of its matrix a program holds at once, and its warps."""
_MOST_NUMBERS = 32768
_ATTENTION_WARPS = 4
_POSITIONS = 128
"""Entries of the cache that a program processes at once."""
_PARTS = 4
"""Most parts that the cache is split into."""


def applies(model: FoldedTransformer, batch: int) -> bool:
    """Whether the kernels support this model and batch: one sequence, and our own blocks with the
    paper's update."""
    gpt = model.config.arch == "gpt" and not model.config.gpt_qk_norm
    paper = gpt or (model.config.arch == "ngpt" and model.config.update == "lerp")
    fits = batch == 1 and model.config.mlp_width <= _MOST_NUMBERS
    ours = GPTBlock.forward, NGPTBlock.forward
    alike = all(  # buffers are as wide as the model's config says
        type(block).forward in ours and block.attention.config == block.mlp.config == model.config
        for block in model.layers
    )
    return model.ops.kernels and fits and paper and alike


class _Layer(NamedTuple):
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

    @classmethod
    def of(cls, block: Block) -> _Layer:
        c = block.config
        W_qkv, W_o, s_qk, kv_heads = block.attention.weights(torch.float32)
        W_u_nu, W_o_mlp = block.mlp.weights(torch.float32)
        if s_qk is not None:
            s_qk = s_qk.view(kv_heads, -1).square().repeat_interleave(c.n_heads // kv_heads, dim=0)
        of_arch: tuple[Tensor | None, ...]
        if isinstance(block, NGPTBlock):
            of_arch = (*block.eigen_learning_rates(), None, None)
        else:
            of_arch = (None, None, block.norm_attn.gain, block.norm_mlp.gain)
        return cls(W_qkv, W_o.t(), W_u_nu, W_o_mlp.t(), s_qk, *of_arch)


class FusedDecode:
    """`cached.decode` for one sequence, with buffers of its own."""

    def __init__(self, model: FoldedTransformer) -> None:
        c, device = model.config, model.E_input.device
        self.model = model
        self.layers = [_Layer.of(block) for block in model.layers]
        heads = c.n_heads * c.d_k

        def buffer(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=device)

        self._h = [buffer(c.d_model), buffer(c.d_model)]
        self._y, self._gated = buffer(c.d_model), buffer(c.mlp_width)
        self._qkv = buffer(heads + 2 * c.kv_heads * c.d_k)
        self._best, self._total = buffer(_PARTS, c.n_heads), buffer(_PARTS, c.n_heads)
        self._parts = buffer(_PARTS, heads)
        self._logits = buffer(1, c.vocab_size)
        self._nothing = buffer(c.d_model)
        self._can_start_early = device.type == "cuda" and torch.cuda.get_device_capability(
            device
        ) >= (9, 0)

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, cache: Cache, span: int) -> Tensor:
        """tokens: (1,), positions: (1,) < span -> logits (1, V), overwritten by the next call"""
        model = self.model
        # Each product needs for the update before it nGPT's α, or the gain of GPT's norm.
        alpha_M: Tensor | None = self._nothing
        for i, layer in enumerate(self.layers):
            self._project(
                "qkv", tokens, layer.gain_attn, alpha_M, layer.W_qkv, self._qkv, first=i == 0
            )
            parts = self._attend(i, layer.q_factors, positions, cache, span)
            self._join(parts, layer.W_o)
            self._project("gated", tokens, layer.gain_mlp, layer.alpha_A, layer.W_u_nu, self._gated)
            self._product(layer.W_o_mlp)
            alpha_M = layer.alpha_M
        gain = None if model.final_norm is None else model.final_norm.gain
        E_output = model.output_embedding(model.dtype)
        self._project("logits", tokens, gain, alpha_M, E_output, self._logits)
        return self._logits

    def _project(
        self,
        product: str,
        tokens: Tensor,
        gain: Tensor | None,
        alpha: Tensor | None,
        W: Tensor,
        out: Tensor,
        first: bool = False,
    ) -> None:
        gated = product == "gated"
        n_rows, D = W.shape[0] // (2 if gated else 1), W.shape[1]
        rows, block, warps = _tile(product, D, 2 if gated else 1)
        before, after = self._h
        project_kernel[(triton.cdiv(n_rows, rows),)](
            tokens, self.model.E_input, before, self._y, alpha if gain is None else gain, W,
            after, out, n_rows, D,
            FIRST=first, NGPT=self.model.config.arch == "ngpt", GATED=gated, ROWS=rows,
            BLOCK=block, num_warps=warps, **self._start(early=not first),
        )  # fmt: skip
        self._h.reverse()

    def _attend(
        self, layer: int, factors: Tensor | None, positions: Tensor, cache: Cache, span: int
    ) -> int:
        c = self.model.config
        parts = max(1, min(_PARTS, span // _POSITIONS))
        keys, values = cache.keys[layer, 0], cache.values[layer, 0]  # (G, S, K)
        rope = self.model.rope.table
        attention_kernel[(c.n_heads, parts)](
            self._qkv, rope, self._nothing if factors is None else factors, positions, keys,
            values, self._best, self._total, self._parts, rope.stride(0), keys.stride(0), span,
            c.softmax_scale,
            HEADS=c.n_heads, KV_HEADS=c.kv_heads, D_K=c.d_k, NORMALIZE=c.arch == "ngpt" and
            c.qk_norm, SCALED=factors is not None, PARTS=parts, POSITIONS=_POSITIONS,
            BLOCK=triton.next_power_of_2(c.d_k // 2), num_warps=_ATTENTION_WARPS,
            **self._start(),
        )  # fmt: skip
        return parts

    def _join(self, parts: int, W_o: Tensor) -> None:
        c = self.model.config
        rows, block, warps = _tile("o", W_o.shape[1])
        join_kernel[(triton.cdiv(W_o.shape[0], rows),)](
            self._best, self._total, self._parts, W_o, self._y, W_o.shape[0], W_o.shape[1],
            HEADS=c.n_heads, D_K=c.d_k, PARTS=parts, ROWS=rows, BLOCK=block, num_warps=warps,
            **self._start(),
        )  # fmt: skip

    def _product(self, W: Tensor) -> None:
        rows, block, warps = _tile("o_mlp", W.shape[1])
        product_kernel[(triton.cdiv(W.shape[0], rows),)](
            self._gated, W, self._y, W.shape[0], W.shape[1],
            ROWS=rows, BLOCK=block, num_warps=warps, **self._start(),
        )  # fmt: skip

    def _start(self, early: bool = True) -> dict[str, bool]:
        """Launch options: the first kernel of a step waits for all others; the rest start early."""
        if not self._can_start_early:
            return {"EARLY": False}
        return {"EARLY": True, "launch_pdl": early}


def _tile(product: str, D: int, matrices: int = 1) -> tuple[int, int, int]:
    """Rows per program, the power of two that covers a row, and the number of warps."""
    numbers, warps = _SHAPES[product]
    block = triton.next_power_of_2(D)
    warps = min(16, max(warps, block // 1024))  # a thread holds 32 numbers of a row at most
    return max(1, numbers // (block * matrices)), block, warps
