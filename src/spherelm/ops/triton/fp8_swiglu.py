"""SwiGLU whose results are FP8 operands: the input of W_oMLP, and the gradient of [u | ν].

    u = s_u (h W_u)    ν = s_ν (h W_ν)    a = u ν σ(ν)

The arithmetic is that of `swiglu`. The factors are applied here, not to the matrices: W_u and W_ν
stay unit vectors, whose FP8 scale is known in advance. With σ = σ(ν) and g the gradient of a:

    du = g ν σ        dν = g u σ (1 + ν (1 − σ))        ds_u = Σ_tokens du (h W_u)   (s_ν likewise)
    d(h W_u) = s_u du                                    d(h W_ν) = s_ν dν

du has s_ν as a factor, dν has s_u. So d(h W_u) and d(h W_ν) are s_u s_ν times a function of h W_u
and ν, and the sums take their factor at the end.

Each program keeps the sums over the tokens it visits, which are added afterwards: no atomics, so
they are reproducible to the bit.

Shapes: N = B·T rows, F d_mlp.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.eight_bits import LARGEST, padded
from spherelm.ops.triton.fp8_cast import (
    as_bytes,
    four_rows,
    largest_of_eights,
    note_largest,
    place,
    rounded,
    sigmoid,
    store_both,
)
from spherelm.ops.triton.swiglu import gate_gradients, gated
from spherelm.ops.triton.tiles import load_pair, load_tile, store_tile, sum_rows

_ROWS, _COLUMNS, _GROUP, _WARPS = 64, 64, 16, 4
"""Tiles as in `fp8_cast`."""
_B_ROWS, _B_COLUMNS, _B_WALK, _B_STAGES, _B_WARPS = 64, 64, 8, 2, 4
"""The same for the backward, with the number of tiles that a program walks over."""


@triton.jit
def _load_factors(pointer, column, F, SCALED: tl.constexpr):
    if SCALED:
        return tl.load(pointer + column, mask=column < F, other=0.0).to(tl.float32)
    return tl.full(column.shape, 1.0, tl.float32)


@triton.jit
def swiglu_kernel_8(
    packed_ptr, s_u_ptr, s_nu_ptr, out_ptr, turned_ptr, scale_ptr, amax_ptr, rows, F, turned_rows,
    LARGEST: tl.constexpr, SCALED: tl.constexpr, AMAX: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, column = place(tl.program_id(0), turned_rows, F, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < F)[None, :]
    at = packed_ptr + row.to(tl.int64)[:, None] * (2 * F) + column[None, :]
    u, nu = load_pair(at, F, mask, EVEN)
    scale = tl.load(scale_ptr)
    nu *= _load_factors(s_nu_ptr, column, F, SCALED)[None, :]
    a = gated(u, nu, sigmoid(nu)) * (_load_factors(s_u_ptr, column, F, SCALED) * scale)[None, :]
    if AMAX:
        note_largest(amax_ptr, a / scale)
    store_both(
        out_ptr, turned_ptr, a, row, column, rows, F, F, turned_rows, turned_rows, LARGEST, EVEN
    )


@triton.jit
def _every_fourth_row(
    packed_ptr, grad_ptr, out_ptr, row, column, rows, F, s_nu, factor, sum_u, sum_nu, largest,
    LARGEST: tl.constexpr, SCALED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Both gradients of some rows in FP8, stored as given; updates the sums and maxima."""
    mask = (row < rows)[:, None] & (column < F)[None, :]
    here = row.to(tl.int64)[:, None] * (2 * F) + column[None, :]
    u, nu = load_pair(packed_ptr + here, F, mask, EVEN)
    g = load_tile(grad_ptr + row.to(tl.int64)[:, None] * F + column[None, :], mask, EVEN)
    scaled_nu = nu * s_nu[None, :]
    grad_u, grad_nu = gate_gradients(u, nu, scaled_nu, sigmoid(scaled_nu), g)
    if SCALED:
        sum_u += grad_u * u
        sum_nu += grad_nu * nu
    grad_u *= factor[None, :]
    grad_nu *= factor[None, :]
    either = tl.maximum(tl.abs(grad_u), tl.abs(grad_nu))
    largest = tl.maximum(largest, largest_of_eights(either))
    bits_u, bits_nu = rounded(grad_u, LARGEST), rounded(grad_nu, LARGEST)
    store_tile(out_ptr + here, bits_u, mask, EVEN)
    store_tile(out_ptr + here + F, bits_nu, mask, EVEN)
    return bits_u, bits_nu, sum_u, sum_nu, largest


@triton.jit
def swiglu_backward_kernel_8(
    packed_ptr, s_u_ptr, s_nu_ptr, grad_ptr, out_ptr, turned_ptr, partial_ptr, scale_ptr, amax_ptr,
    rows, F, turned_rows,
    LARGEST: tl.constexpr, SCALED: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WALK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A program walks down WALK tiles, so that its sums are reduced only once. Bytes of four rows
    are packed into words before they are transposed."""
    across = tl.cdiv(F, COLUMNS)
    walk = tl.program_id(0) // across
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < F
    scale = tl.load(scale_ptr)
    s_nu = _load_factors(s_nu_ptr, column, F, SCALED)
    factor = s_nu * _load_factors(s_u_ptr, column, F, SCALED) * scale
    FOURTH: tl.constexpr = ROWS // 4
    sum_u = tl.zeros((FOURTH, COLUMNS), tl.float32)
    sum_nu = tl.zeros((FOURTH, COLUMNS), tl.float32)
    largest = tl.zeros((FOURTH, COLUMNS // 8), tl.float32)
    words_ptr = turned_ptr.to(tl.pointer_type(tl.uint32))
    stride = turned_rows // 4
    for step in tl.range(0, WALK, num_stages=STAGES):
        four = (walk * WALK + step) * FOURTH + tl.arange(0, FOURTH)
        u_0, nu_0, sum_u, sum_nu, largest = _every_fourth_row(
            packed_ptr, grad_ptr, out_ptr, four * 4, column, rows, F, s_nu, factor, sum_u, sum_nu,
            largest, LARGEST, SCALED, EVEN,
        )  # fmt: skip
        u_1, nu_1, sum_u, sum_nu, largest = _every_fourth_row(
            packed_ptr, grad_ptr, out_ptr, four * 4 + 1, column, rows, F, s_nu, factor, sum_u,
            sum_nu, largest, LARGEST, SCALED, EVEN,
        )  # fmt: skip
        u_2, nu_2, sum_u, sum_nu, largest = _every_fourth_row(
            packed_ptr, grad_ptr, out_ptr, four * 4 + 2, column, rows, F, s_nu, factor, sum_u,
            sum_nu, largest, LARGEST, SCALED, EVEN,
        )  # fmt: skip
        u_3, nu_3, sum_u, sum_nu, largest = _every_fourth_row(
            packed_ptr, grad_ptr, out_ptr, four * 4 + 3, column, rows, F, s_nu, factor, sum_u,
            sum_nu, largest, LARGEST, SCALED, EVEN,
        )  # fmt: skip
        of_u = words_ptr + column.to(tl.int64)[:, None] * stride + four[None, :]
        of_nu = words_ptr + (column.to(tl.int64) + F)[:, None] * stride + four[None, :]
        there = inside[:, None] & (four < stride)[None, :]
        store_tile(of_u, tl.trans(four_rows(u_0, u_1, u_2, u_3)), there, EVEN)
        store_tile(of_nu, tl.trans(four_rows(nu_0, nu_1, nu_2, nu_3)), there, EVEN)
    if SCALED:
        here = partial_ptr + tl.cast(walk, tl.int64) * (2 * F) + column
        # Factors are loaded again: kept during the loop, they would take registers it needs.
        ds_u = tl.sum(sum_u, axis=0) * _load_factors(s_nu_ptr, column, F, SCALED)
        ds_nu = tl.sum(sum_nu, axis=0) * _load_factors(s_u_ptr, column, F, SCALED)
        tl.store(here, ds_u, mask=inside)
        tl.store(here + F, ds_nu, mask=inside)
    note_largest(amax_ptr, largest / scale)


def swiglu(
    packed: Tensor, factors: tuple[Tensor, Tensor] | None, scale: Tensor, amax: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """a in FP8, and transposed.  packed: (N, 2F), factors: (F,) each -> (N, F), (F, N')"""
    rows, F = packed.shape[0], packed.shape[1] // 2
    out = torch.empty(rows, F, dtype=dtype, device=packed.device)
    turned = torch.empty(F, padded(rows), dtype=dtype, device=packed.device)
    s_u, s_nu = (packed, packed) if factors is None else factors
    swiglu_kernel_8[(triton.cdiv(turned.shape[1], _ROWS) * triton.cdiv(F, _COLUMNS),)](
        packed, s_u, s_nu, as_bytes(out), as_bytes(turned), scale, scale if amax is None else amax,
        rows, F, turned.shape[1],
        LARGEST=LARGEST[dtype], SCALED=factors is not None, AMAX=amax is not None,
        EVEN=rows % _ROWS == 0 and F % _COLUMNS == 0,
        ROWS=_ROWS, COLUMNS=_COLUMNS, GROUP=_GROUP, num_warps=_WARPS,
    )  # fmt: skip
    return out, turned


def swiglu_backward(
    packed: Tensor, factors: tuple[Tensor, Tensor] | None, grad: Tensor, scale: Tensor,
    amax: Tensor, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradient of `packed` in FP8, also transposed, and those of [s_u | s_ν], float32.

    packed: (N, 2F), grad: (N, F) -> (N, 2F), (2F, N'), (2F,), empty without factors
    """
    rows, F = grad.shape
    out = torch.empty(rows, 2 * F, dtype=dtype, device=packed.device)
    turned = torch.empty(2 * F, padded(rows), dtype=dtype, device=packed.device)
    walk = min(_B_WALK, triton.cdiv(turned.shape[1], _B_ROWS))
    walks = triton.cdiv(turned.shape[1], _B_ROWS * walk)
    s_u, s_nu = (packed, packed) if factors is None else factors
    sums = 0 if factors is None else walks
    partial = torch.empty(sums, 2 * F, dtype=torch.float32, device=packed.device)
    swiglu_backward_kernel_8[(walks * triton.cdiv(F, _B_COLUMNS),)](
        packed, s_u, s_nu, grad, as_bytes(out), as_bytes(turned), partial, scale, amax,
        rows, F, turned.shape[1], LARGEST=LARGEST[dtype], SCALED=factors is not None,
        EVEN=rows % (_B_ROWS * walk) == 0 and F % _B_COLUMNS == 0,
        ROWS=_B_ROWS, COLUMNS=_B_COLUMNS, WALK=walk,
        STAGES=_B_STAGES, num_warps=_B_WARPS,
    )  # fmt: skip
    return out, turned, partial.view(0) if factors is None else sum_rows(partial)
