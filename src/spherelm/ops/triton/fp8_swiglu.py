"""SwiGLU whose results are eight-bit operands: the input of W_oMLP, and the gradient of [u | ν].

    u = s_u (h W_u)    ν = s_ν (h W_ν)    a = u ν σ(ν)

The factors are multiplied here, not into the matrices: W_u and W_ν stay unit vectors, whose scale
in eight bits is known beforehand. With σ = σ(ν) and g the gradient of a:

    du = g ν σ        dν = g u σ (1 + ν (1 − σ))        ds_u = Σ_tokens du (h W_u)   (s_ν likewise)
    d(h W_u) = s_u du                                    d(h W_ν) = s_ν dν

Sums over the tokens of a tile are kept by its program and added afterwards: they repeat to the bit.

Shapes: N = B·T rows, F d_mlp.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.triton.fp8_cast import LARGEST, note_largest, padded, place, rounded, store_both
from spherelm.ops.triton.tiles import sum_rows

_ROWS, _COLUMNS, _GROUP, _WARPS = 128, 64, 8, 8
_BACKWARD_ROWS, _BACKWARD_COLUMNS, _BACKWARD_GROUP, _BACKWARD_WARPS = 128, 32, 8, 8


@triton.jit
def _load_scaled(ptr, at, mask, factor_ptr, column, F, SCALED: tl.constexpr):
    """A tile as it was projected, and its factors: one for each column."""
    x = tl.load(ptr + at, mask=mask, other=0.0).to(tl.float32)
    factor = tl.full(column.shape, 1.0, tl.float32)
    if SCALED:
        factor = tl.load(factor_ptr + column, mask=column < F, other=0.0).to(tl.float32)
    return x, factor


@triton.jit
def swiglu_kernel_8(
    packed_ptr, s_u_ptr, s_nu_ptr, out_ptr, turned_ptr, scale_ptr, amax_ptr, rows, F, turned_rows,
    LARGEST: tl.constexpr, SCALED: tl.constexpr, AMAX: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    _, row, column = place(tl.program_id(0), turned_rows, F, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < F)[None, :]
    at = row.to(tl.int64)[:, None] * (2 * F) + column[None, :]
    u, s_u = _load_scaled(packed_ptr, at, mask, s_u_ptr, column, F, SCALED)
    nu, s_nu = _load_scaled(packed_ptr, at + F, mask, s_nu_ptr, column, F, SCALED)
    nu *= s_nu[None, :]
    a = u * s_u[None, :] * nu * tl.sigmoid(nu)
    if AMAX:
        note_largest(amax_ptr, a)
    a = rounded(a, tl.load(scale_ptr), LARGEST, out_ptr.dtype.element_ty)
    store_both(out_ptr, turned_ptr, a, row, column, rows, F, F, turned_rows, turned_rows)


@triton.jit
def swiglu_backward_kernel_8(
    packed_ptr, s_u_ptr, s_nu_ptr, grad_ptr, out_ptr, turned_ptr, partial_ptr, scale_ptr, amax_ptr,
    rows, F, turned_rows,
    LARGEST: tl.constexpr, SCALED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    tile, row, column = place(tl.program_id(0), turned_rows, F, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < F)[None, :]
    at = row.to(tl.int64)[:, None] * (2 * F) + column[None, :]
    u, s_u = _load_scaled(packed_ptr, at, mask, s_u_ptr, column, F, SCALED)
    nu, s_nu = _load_scaled(packed_ptr, at + F, mask, s_nu_ptr, column, F, SCALED)
    grad_at = row.to(tl.int64)[:, None] * F + column[None, :]
    g = tl.load(grad_ptr + grad_at, mask=mask, other=0.0).to(tl.float32)
    scaled_nu = nu * s_nu[None, :]
    sigma = tl.sigmoid(scaled_nu)
    g *= sigma
    grad_u = g * scaled_nu
    grad_nu = g * (u * s_u[None, :]) * (1 + scaled_nu * (1 - sigma))
    if SCALED:
        here = partial_ptr + tl.cast(tile, tl.int64) * (2 * F) + column
        tl.store(here, tl.sum(grad_u * u, axis=0), mask=column < F)
        tl.store(here + F, tl.sum(grad_nu * nu, axis=0), mask=column < F)
        grad_u *= s_u[None, :]
        grad_nu *= s_nu[None, :]
    note_largest(amax_ptr, tl.maximum(tl.abs(grad_u), tl.abs(grad_nu)))
    scale = tl.load(scale_ptr)
    grad_u = rounded(grad_u, scale, LARGEST, out_ptr.dtype.element_ty)
    store_both(out_ptr, turned_ptr, grad_u, row, column, rows, F, 2 * F, turned_rows, turned_rows)
    grad_nu = rounded(grad_nu, scale, LARGEST, out_ptr.dtype.element_ty)
    store_both(
        out_ptr + F, turned_ptr + tl.cast(F, tl.int64) * turned_rows, grad_nu, row, column, rows, F,
        2 * F, turned_rows, turned_rows,
    )  # fmt: skip


def swiglu(
    packed: Tensor, factors: tuple[Tensor, Tensor] | None, scale: Tensor, amax: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """a in eight bits and transposed.  packed: (N, 2F), factors: (F,) each -> (N, F), (F, N')"""
    rows, F = packed.shape[0], packed.shape[1] // 2
    out = torch.empty(rows, F, dtype=dtype, device=packed.device)
    turned = torch.empty(F, padded(rows), dtype=dtype, device=packed.device)
    s_u, s_nu = (packed, packed) if factors is None else factors
    swiglu_kernel_8[(triton.cdiv(turned.shape[1], _ROWS) * triton.cdiv(F, _COLUMNS),)](
        packed, s_u, s_nu, out, turned, scale, scale if amax is None else amax, rows, F,
        turned.shape[1], LARGEST=LARGEST[dtype], SCALED=factors is not None, AMAX=amax is not None,
        ROWS=_ROWS, COLUMNS=_COLUMNS, GROUP=_GROUP, num_warps=_WARPS,
    )  # fmt: skip
    return out, turned


def swiglu_backward(
    packed: Tensor, factors: tuple[Tensor, Tensor] | None, grad: Tensor, scale: Tensor,
    amax: Tensor, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradient of `packed` in eight bits, transposed, and those of [s_u | s_ν], float32.

    packed: (N, 2F), grad: (N, F) -> (N, 2F), (2F, N'), (2F,), empty without factors
    """
    rows, F = grad.shape
    out = torch.empty(rows, 2 * F, dtype=dtype, device=packed.device)
    turned = torch.empty(2 * F, padded(rows), dtype=dtype, device=packed.device)
    tile_rows = triton.cdiv(turned.shape[1], _BACKWARD_ROWS)
    s_u, s_nu = (packed, packed) if factors is None else factors
    sums = 0 if factors is None else tile_rows
    partial = torch.empty(sums, 2 * F, dtype=torch.float32, device=packed.device)
    swiglu_backward_kernel_8[(tile_rows * triton.cdiv(F, _BACKWARD_COLUMNS),)](
        packed, s_u, s_nu, grad, out, turned, partial, scale, amax, rows, F, turned.shape[1],
        LARGEST=LARGEST[dtype], SCALED=factors is not None,
        ROWS=_BACKWARD_ROWS, COLUMNS=_BACKWARD_COLUMNS, GROUP=_BACKWARD_GROUP,
        num_warps=_BACKWARD_WARPS,
    )  # fmt: skip
    return out, turned, partial.view(0) if factors is None else sum_rows(partial)
