"""Numbers rounded to eight bits, written both ways round: as they lie, and transposed.

Hopper's product of eight-bit numbers wants both operands contiguous along the summed dimension. A
product's forward sums over columns, its gradient of weights over tokens: every operand is needed in
both orders, which together take the bytes of one in bfloat16.

Each number is multiplied by a scale, clamped to what the format holds, and rounded to nearest. The
largest magnitude before that goes to `amax`, where somebody keeps it for the next scale.

Shapes: R rows, C columns; a transposed copy has its rows filled up with zeros to a multiple of 16,
as products along them want it.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
"""The largest number of each format."""
_ROWS, _COLUMNS, _WARPS = 128, 64, 4
"""The tile of a program: 128 rows are a line of 128 bytes of the transposed copy."""
_GROUP = 8
"""Tiles below each other that are worked on before those beside them: 1 KiB of a transposed row."""
_TURN_ROWS, _TURN_COLUMNS, _TURN_WARPS = 128, 128, 8


def padded(rows: int) -> int:
    """The length of a transposed row."""
    return -(-rows // 16) * 16


@triton.jit
def place(
    program, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """The tile of a program: which of those below each other, its rows and its columns."""
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    first = program // (GROUP * across) * GROUP
    high = tl.minimum(down - first, GROUP)
    inside = program % (GROUP * across)
    tile = first + inside % high
    return tile, tile * ROWS + tl.arange(0, ROWS), inside // high * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def rounded(x, scale, LARGEST: tl.constexpr, DTYPE: tl.constexpr):
    """x · scale in eight bits; what is too large becomes the largest number."""
    return tl.clamp(x * scale, -LARGEST, LARGEST).to(DTYPE)


@triton.jit
def note_largest(amax_ptr, x):
    """amax ← max(amax, |x|)"""
    tl.atomic_max(amax_ptr, tl.max(tl.abs(x)), sem="relaxed")


@triton.jit
def store_both(out_ptr, turned_ptr, x, row, column, rows, columns, out_stride, turned_stride,
               turned_rows):  # fmt: skip
    """A tile of eight-bit numbers, zero beyond the last row, as it lies and transposed."""
    row_64 = row.to(tl.int64)
    there = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out_ptr + row_64[:, None] * out_stride + column[None, :], x, mask=there)
    there = (column < columns)[:, None] & (row < turned_rows)[None, :]
    at = turned_ptr + column.to(tl.int64)[:, None] * turned_stride + row[None, :]
    tl.store(at, tl.trans(x), mask=there)


@triton.jit
def cast_kernel(
    x_ptr, out_ptr, turned_ptr, scale_ptr, amax_ptr, rows, columns, turned_rows,
    LARGEST: tl.constexpr, AMAX: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    _, row, column = place(tl.program_id(0), turned_rows, columns, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    if AMAX:
        note_largest(amax_ptr, x)
    x = rounded(x, tl.load(scale_ptr), LARGEST, out_ptr.dtype.element_ty)
    store_both(
        out_ptr, turned_ptr, x, row, column, rows, columns, columns, turned_rows, turned_rows
    )


def cast_(x: Tensor, scale: Tensor, amax: Tensor | None, out: Tensor, turned: Tensor) -> None:
    """x · scale into `out`, like x, and `turned`: (R, C) -> (R, C), (C, R filled up to 16)

    scale, amax: one float32 each
    """
    rows, columns = x.shape
    count = triton.cdiv(turned.shape[1], _ROWS) * triton.cdiv(columns, _COLUMNS)
    cast_kernel[(count,)](
        x, out, turned, scale, scale if amax is None else amax, rows, columns, turned.shape[1],
        LARGEST=LARGEST[out.dtype], AMAX=amax is not None, ROWS=_ROWS, COLUMNS=_COLUMNS,
        GROUP=_GROUP, num_warps=_WARPS,
    )  # fmt: skip


@triton.jit
def cast_matrix_kernel(
    x_ptr, out_ptr, turned_ptr, scale_ptr, first, rows, columns, turned_rows,
    LARGEST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """As `cast_kernel`, into the rows from `first` of a larger matrix."""
    _, row, column = place(tl.program_id(0), rows, columns, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x = rounded(x, tl.load(scale_ptr), LARGEST, out_ptr.dtype.element_ty)
    store_both(
        out_ptr + tl.cast(first, tl.int64) * columns, turned_ptr + first, x, row, column, rows,
        columns, columns, turned_rows, rows,
    )  # fmt: skip


def cast_matrices_(matrices: list[Tensor], scale: Tensor, out: Tensor, turned: Tensor) -> None:
    """Matrices below each other into `out` and `turned`: (nᵢ, D) -> (Σ nᵢ, D), (D, Σ nᵢ)"""
    first, columns = 0, out.shape[1]
    for matrix in matrices:
        rows = matrix.shape[0]
        count = triton.cdiv(rows, _ROWS) * triton.cdiv(columns, _COLUMNS)
        cast_matrix_kernel[(count,)](
            matrix.contiguous(), out, turned, scale, first, rows, columns, turned.shape[1],
            LARGEST=LARGEST[out.dtype], ROWS=_ROWS, COLUMNS=_COLUMNS, GROUP=_GROUP,
            num_warps=_WARPS,
        )  # fmt: skip
        first += rows


@triton.jit
def turn_kernel(
    x_ptr, turned_ptr, rows, columns, turned_rows,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    _, row, column = place(tl.program_id(0), turned_rows, columns, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0)
    there = (column < columns)[:, None] & (row < turned_rows)[None, :]
    at = turned_ptr + column.to(tl.int64)[:, None] * turned_rows + row[None, :]
    tl.store(at, tl.trans(x), mask=there)


def turn_(x: Tensor, turned: Tensor) -> None:
    """Eight-bit numbers transposed: (R, C) -> (C, R filled up to 16)"""
    rows, columns = x.shape
    count = triton.cdiv(turned.shape[1], _TURN_ROWS) * triton.cdiv(columns, _TURN_COLUMNS)
    turn_kernel[(count,)](
        x.view(torch.uint8), turned.view(torch.uint8), rows, columns, turned.shape[1],
        ROWS=_TURN_ROWS, COLUMNS=_TURN_COLUMNS, GROUP=_GROUP, num_warps=_TURN_WARPS,
    )  # fmt: skip
