"""Operators that compute and round in one pass: `ops.triton.fp8_*`, for torch.compile.

They write the largest numbers they see into `amax` (see `held.Product`), and change no other input.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
from torch import Tensor

from spherelm.ops.eight_bits import E4M3, E5M2, padded
from spherelm.ops.fp8.operator import operator
from spherelm.ops.triton import fp8_qkv, fp8_residual, fp8_swiglu


def _both(s_u: Tensor | None, s_nu: Tensor | None) -> tuple[Tensor, Tensor] | None:
    return None if s_u is None or s_nu is None else (s_u.contiguous(), s_nu.contiguous())


def _swiglu_like(packed, s_u, s_nu, scale, amax, slot, sees):
    rows, F = packed.shape[0], packed.shape[1] // 2
    return packed.new_empty(rows, F, dtype=E4M3), packed.new_empty(F, padded(rows), dtype=E4M3)


@operator("fp8_swiglu", fake=_swiglu_like)
def swiglu(
    packed: Tensor, s_u: Tensor | None, s_nu: Tensor | None, scale: Tensor, amax: Tensor,
    slot: int, sees: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(s_u u) · SiLU(s_ν ν), and transposed.  packed: (N, 2F) -> (N, F), (F, N')"""
    seen = amax[slot] if sees else None
    return fp8_swiglu.swiglu(packed, _both(s_u, s_nu), scale[slot], seen, E4M3)


def _swiglu_backward_like(packed, s_u, s_nu, grad, scale, amax, slot):
    rows, width = packed.shape
    return (
        packed.new_empty(rows, width, dtype=E5M2),
        packed.new_empty(width, padded(rows), dtype=E5M2),
        packed.new_empty(0 if s_u is None else width, dtype=torch.float32),
    )


@operator("fp8_swiglu_backward", fake=_swiglu_backward_like)
def swiglu_backward(
    packed: Tensor, s_u: Tensor | None, s_nu: Tensor | None, grad: Tensor, scale: Tensor,
    amax: Tensor, slot: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradient of `packed`, and transposed, and those of [s_u | s_ν], float32."""
    return fp8_swiglu.swiglu_backward(
        packed, _both(s_u, s_nu), grad.contiguous(), scale[slot], amax[slot], E5M2
    )


def _qkv_backward_like(
    packed, table, s_qk, inverse, grad_q, grad_k, grad_v, qk_norm, scale, amax, slot
):
    batch, T, heads, K = grad_q.shape
    rows, width = batch * T, (heads + 2 * grad_k.shape[2]) * K
    return (
        grad_q.new_empty(rows, width, dtype=E5M2),
        grad_q.new_empty(width, padded(rows), dtype=E5M2),
        grad_q.new_empty(0 if s_qk is None else grad_k.shape[2] * K, dtype=torch.float32),
    )


@operator("fp8_qkv_backward", fake=_qkv_backward_like)
def qkv_backward(
    packed: Tensor | None, table: Tensor, s_qk: Tensor | None, inverse: Tensor | None,
    grad_q: Tensor, grad_k: Tensor, grad_v: Tensor, qk_norm: bool, scale: Tensor, amax: Tensor,
    slot: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradient of the packed projection, and transposed, and Σ_tokens g q̂, float32."""
    grads = grad_q, grad_k, grad_v
    return fp8_qkv.qkv_backward(
        packed, table, s_qk, inverse, grads, qk_norm, scale[slot], amax[slot], E5M2
    )


def _update_backward_like(h, y, alpha, grad, more, scale, amax, slot):
    like = torch.empty_like(h, memory_format=torch.contiguous_format)
    return like, h.new_empty(h.shape, dtype=E5M2), h.new_empty(h.shape[-1], dtype=torch.float32)


@operator("fp8_update_backward", fake=_update_backward_like)
def update_backward(
    h: Tensor, y: Tensor, alpha: Tensor, grad: Tensor, more: Tensor | None, scale: Tensor,
    amax: Tensor, slot: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of h, of y in FP8, and of alpha, float32."""
    return fp8_residual.residual_backward(
        h.contiguous(), y, alpha.contiguous(), grad.contiguous(),
        None if more is None else more.contiguous(), scale[slot], amax[slot], E5M2,
    )  # fmt: skip
