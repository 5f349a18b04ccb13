"""Rounding to FP8, written in both orders: as given, and transposed.

Hopper's FP8 product wants both operands contiguous along the summed dimension. A product's forward
sums over columns, its weight gradient over tokens, so every operand is needed in both orders, which
together take as many bytes as one in bfloat16.

Each number is multiplied by a scale, clamped to the range of the format, and rounded to nearest.
`amax`, if given, takes the largest magnitude before scaling, for the next scale.

Shapes: R rows, C columns; rows of a transposed copy are padded with zeros to a multiple of 16, as
products along them need.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.eight_bits import LARGEST
from spherelm.ops.triton.tiles import load_tile, store_tile, to_device

_ROWS, _COLUMNS, _GROUP, _WARPS = 128, 64, 8, 4
"""The tile of a program: 128 rows are 128 contiguous bytes of the transposed copy. Programs go down
8 tiles, 1 KiB of it, before they go to the next column of tiles."""
_TABLE = tl.constexpr(7)
"""How many numbers describe a matrix in the table: four addresses and three sizes."""
_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
_TURN_ROWS, _TURN_COLUMNS, _TURN_WARPS = 128, 128, 8


def as_bytes(x: Tensor) -> Tensor:
    """FP8 numbers as bytes, the form in which kernels write them."""
    return x.view(torch.uint8)


@triton.jit
def place(
    program, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """The tile of a program: its rows and its columns."""
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    first = program // (GROUP * across) * GROUP
    high = tl.minimum(down - first, GROUP)
    inside = program % (GROUP * across)
    tile = first + inside % high
    return tile * ROWS + tl.arange(0, ROWS), inside // high * COLUMNS + tl.arange(0, COLUMNS)


_ON_GPU = tl.constexpr(not triton.knobs.runtime.interpret)


@triton.jit
def rounded(x, LARGEST: tl.constexpr):
    """x in FP8, as bytes; numbers that are too large become the largest of the format.

    Uses the hardware's instruction, four numbers at a time: Triton 3.6 converts again for each
    layout in which the result is needed, and not always to nearest.
    """
    if _ON_GPU:
        if LARGEST > 1000:
            return tl.inline_asm_elementwise(
                "{ .reg .b16 a, b; cvt.rn.satfinite.e5m2x2.f32 a, $2, $1; "
                "cvt.rn.satfinite.e5m2x2.f32 b, $4, $3; mov.b32 $0, {a, b}; }",
                "=r,f,f,f,f", [x], dtype=tl.uint8, is_pure=False, pack=4,
            )  # fmt: skip
        return tl.inline_asm_elementwise(
            "{ .reg .b16 a, b; cvt.rn.satfinite.e4m3x2.f32 a, $2, $1; "
            "cvt.rn.satfinite.e4m3x2.f32 b, $4, $3; mov.b32 $0, {a, b}; }",
            "=r,f,f,f,f", [x], dtype=tl.uint8, is_pure=False, pack=4,
        )  # fmt: skip
    x = tl.clamp(x, -LARGEST, LARGEST)
    if LARGEST > 1000:
        return x.to(tl.float8e5).to(tl.uint8, bitcast=True)
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def note_largest(amax_ptr, x):
    """amax ← max(amax, |x|)"""
    tl.atomic_max(amax_ptr, tl.max(tl.abs(x)), sem="relaxed")


@triton.jit
def largest_of_eights(x):
    """The largest of each eight neighbours in a row; one thread holds them, so none is exchanged.

    (R, C) -> (R, C/8)
    """
    return tl.max(tl.reshape(x, (x.shape[0], x.shape[1] // 8, 8)), axis=2)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(−x)) in four instructions, to 2^-21; Triton's own takes a dozen."""
    if _ON_GPU:
        return tl.inline_asm_elementwise(
            "{ .reg .f32 t; mul.f32 t, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t; "
            "add.f32 t, t, 0f3F800000; rcp.approx.ftz.f32 $0, t; }",
            "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    return tl.sigmoid(x)


@triton.jit
def four_rows(a, b, c, d):
    """The bytes of four rows packed into words, the first row lowest, since transposing words is a
    quarter of the work.  (R, C) bytes each -> (R, C) words"""
    if _ON_GPU:  # four words of each thread at a time, from four bytes of each row
        return tl.inline_asm_elementwise(
            "{ .reg .b32 a, b, c, d; prmt.b32 a, $4, $5, 0x5140; prmt.b32 b, $4, $5, 0x7362; "
            "prmt.b32 c, $6, $7, 0x5140; prmt.b32 d, $6, $7, 0x7362; "
            "prmt.b32 $0, a, c, 0x5410; prmt.b32 $1, a, c, 0x7632; "
            "prmt.b32 $2, b, d, 0x5410; prmt.b32 $3, b, d, 0x7632; }",
            "=r,=r,=r,=r,r,r,r,r", [a, b, c, d], dtype=tl.uint32, is_pure=True, pack=4,
        )  # fmt: skip
    high = (c.to(tl.uint32) << 16) | (d.to(tl.uint32) << 24)
    return a.to(tl.uint32) | (b.to(tl.uint32) << 8) | high


@triton.jit
def store_both(
    out_ptr, turned_ptr, x, row, column, rows, columns, out_stride, turned_stride, turned_rows,
    LARGEST: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Store a tile in FP8, as given and transposed; padding rows are expected to be zero."""
    bits = rounded(x, LARGEST)
    here = out_ptr + row.to(tl.int64)[:, None] * out_stride + column[None, :]
    there = turned_ptr + column.to(tl.int64)[:, None] * turned_stride + row[None, :]
    inside = column < columns
    store_tile(here, bits, (row < rows)[:, None] & inside[None, :], EVEN)
    store_tile(there, tl.trans(bits), inside[:, None] & (row < turned_rows)[None, :], EVEN)


@triton.jit
def cast_kernel(
    x_ptr, out_ptr, turned_ptr, scale_ptr, amax_ptr, rows, columns, turned_rows,
    LARGEST: tl.constexpr, AMAX: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, column = place(tl.program_id(0), turned_rows, columns, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    x = load_tile(x_ptr + at, mask, EVEN)
    if AMAX:
        note_largest(amax_ptr, x)
    store_both(
        out_ptr, turned_ptr, x * tl.load(scale_ptr), row, column, rows, columns, columns,
        turned_rows, turned_rows, LARGEST, EVEN,
    )  # fmt: skip


def cast_(x: Tensor, scale: Tensor, amax: Tensor | None, out: Tensor, turned: Tensor) -> None:
    """x · scale into `out`, like x, and transposed into `turned`: (R, C) -> (R, C), (C, R padded)

    scale, amax: one float32 each
    """
    rows, columns = x.shape
    count = triton.cdiv(turned.shape[1], _ROWS) * triton.cdiv(columns, _COLUMNS)
    cast_kernel[(count,)](
        x, as_bytes(out), as_bytes(turned), scale, scale if amax is None else amax,
        rows, columns, turned.shape[1],
        LARGEST=LARGEST[out.dtype], AMAX=amax is not None,
        EVEN=rows % _ROWS == 0 and columns % _COLUMNS == 0,
        ROWS=_ROWS, COLUMNS=_COLUMNS, GROUP=_GROUP, num_warps=_WARPS,
    )  # fmt: skip


@triton.jit
def cast_matrices_kernel(
    table_ptr, owner_ptr, tile_ptr,
    LARGEST: tl.constexpr, DTYPE: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of one of many matrices, found through a table of addresses and sizes."""
    owner = table_ptr + tl.load(owner_ptr + tl.program_id(0)) * _TABLE
    tile = tl.load(tile_ptr + tl.program_id(0))
    x_ptr = tl.multiple_of(tl.load(owner).to(tl.pointer_type(DTYPE)), 16)
    out_ptr = tl.multiple_of(tl.load(owner + 1).to(tl.pointer_type(tl.uint8)), 16)
    turned_ptr = tl.multiple_of(tl.load(owner + 2).to(tl.pointer_type(tl.uint8)), 16)
    scale = tl.load(tl.load(owner + 3).to(tl.pointer_type(tl.float32)))
    rows, columns = tl.load(owner + 4).to(tl.int32), tl.load(owner + 5).to(tl.int32)
    stride = tl.multiple_of(tl.load(owner + 6).to(tl.int32), 16)  # of a transposed row
    if EVEN:
        columns = tl.multiple_of(columns, 16)
    across = tl.cdiv(columns, COLUMNS)
    row = tile // across * ROWS + tl.arange(0, ROWS)
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    x = load_tile(x_ptr + at, mask, EVEN)
    store_both(
        out_ptr, turned_ptr, x * scale, row, column, rows, columns, columns, stride, rows, LARGEST,
        EVEN,
    )  # fmt: skip


class Matrices(NamedTuple):
    """The matrices of one product, their scale, and where they go, stacked:
    (nᵢ, D), one float32 -> (Σ nᵢ, D), (D, Σ nᵢ)"""

    matrices: Sequence[Tensor]
    scale: Tensor
    out: Tensor
    turned: Tensor


@lru_cache(maxsize=64)
def _tiles(shapes: tuple[tuple[int, int], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """For each program, the matrix it works on, and its tile there."""
    counts = torch.tensor([triton.cdiv(n, _ROWS) * triton.cdiv(d, _COLUMNS) for n, d in shapes])
    owner = torch.repeat_interleave(torch.arange(len(shapes)), counts)
    first = torch.arange(len(owner)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return owner.int().to(device), first.int().to(device)


def cast_matrices_(products: Sequence[Matrices]) -> None:
    """Round the matrices of all products in one launch; one dtype, widths multiples of 16."""
    rows: list[list[int]] = []
    for matrices, scale, out, turned in products:
        first, (total, D) = 0, out.shape
        for matrix in matrices:
            assert matrix.is_contiguous()
            places = matrix.data_ptr(), out.data_ptr() + first * D, turned.data_ptr() + first
            rows.append([*places, scale.data_ptr(), matrix.shape[0], D, total])
            first += matrix.shape[0]
    device, dtype = products[0].out.device, products[0].matrices[0].dtype
    shapes = tuple((row[4], row[5]) for row in rows)
    owner, tile = _tiles(shapes, device)
    cast_matrices_kernel[(len(owner),)](
        to_device(torch.tensor(rows), device), owner, tile,
        LARGEST=LARGEST[products[0].out.dtype], DTYPE=_DTYPES[dtype],
        EVEN=all(n % _ROWS == 0 and d % _COLUMNS == 0 for n, d in shapes),
        ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS,
    )  # fmt: skip


@triton.jit
def turn_kernel(
    x_ptr, turned_ptr, rows, columns, turned_rows,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, column = place(tl.program_id(0), turned_rows, columns, ROWS, COLUMNS, GROUP)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0)
    there = (column < columns)[:, None] & (row < turned_rows)[None, :]
    at = turned_ptr + column.to(tl.int64)[:, None] * turned_rows + row[None, :]
    tl.store(at, tl.trans(x), mask=there)


def turn_(x: Tensor, turned: Tensor) -> None:
    """FP8 numbers transposed: (R, C) -> (C, R padded to a multiple of 16)"""
    rows, columns = x.shape
    count = triton.cdiv(turned.shape[1], _TURN_ROWS) * triton.cdiv(columns, _TURN_COLUMNS)
    turn_kernel[(count,)](
        as_bytes(x), as_bytes(turned), rows, columns, turned.shape[1],
        ROWS=_TURN_ROWS, COLUMNS=_TURN_COLUMNS, GROUP=_GROUP, num_warps=_TURN_WARPS,
    )  # fmt: skip
