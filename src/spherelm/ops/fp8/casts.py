"""Rounding to FP8, and products of rounded operands: plain, and as operators with kernels.

`fused` asks for the kernels of `ops.triton`. Without a GPU a product is simulated: FP8 numbers and
the products of two are exact in float32, and sums are in float32 as on a GPU.

Shapes: N tokens, N' padded with zeros to a multiple of 16, for sums over tokens.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.ops.eight_bits import E4M3, E5M2, LARGEST, padded
from spherelm.ops.fp8.held import GRADIENT, INPUT, MATRIX, Product
from spherelm.ops.fp8.operator import operator

Watch = Callable[[Tensor, Tensor, int], None]
"""Called with an FP8 operand of a product, the inverse scales of its part, and its slot."""
_WATCHERS: list[Watch] = []


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Let `watch` see every operand of every product inside the `with` block."""
    _WATCHERS.append(watch)
    try:
        yield
    finally:
        _WATCHERS.remove(watch)


def turned_plainly(x8: Tensor) -> Tensor:
    """(N, C) -> (C, N')"""
    rows = x8.shape[0]
    bits = F.pad(x8.view(torch.uint8).t(), (0, padded(rows) - rows))
    return bits.contiguous().view(x8.dtype)


def cast(x: Tensor, product: Product, operand: int, fused: bool) -> tuple[Tensor, Tensor]:
    """An operand of a product in FP8, and transposed: (N, C) -> (N, C), (C, N')

    Also records the largest number of GPT's inputs and of all gradients, for the next scale.
    """
    gradient = operand == GRADIENT
    sees = gradient or not product.sphere
    return cast_op(x, product.scale, product.amax, product.slot + operand, gradient, sees, fused)


def _room(x: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    dtype = E5M2 if gradient else E4M3
    turned = x.new_empty(x.shape[1], padded(x.shape[0]), dtype=dtype)
    return x.new_empty(x.shape, dtype=dtype), turned


@operator("fp8_cast", fake=lambda x, scale, amax, slot, gradient, sees, fused: _room(x, gradient))
def cast_op(
    x: Tensor, scale: Tensor, amax: Tensor, slot: int, gradient: bool, sees: bool, fused: bool
) -> tuple[Tensor, Tensor]:
    if not fused:
        return _cast_plainly(x, scale[slot], amax.data[slot] if sees else None, gradient)
    from spherelm.ops.triton.fp8_cast import cast_

    x = x.contiguous()
    out, turned = _room(x, gradient)
    cast_(x, scale[slot], amax[slot] if sees else None, out, turned)
    return out, turned


def _cast_plainly(
    x: Tensor, scale: Tensor, largest: Tensor | None, gradient: bool
) -> tuple[Tensor, Tensor]:
    dtype = E5M2 if gradient else E4M3
    if largest is not None:
        largest.copy_(torch.maximum(largest, x.abs().max().float()))
    limit = LARGEST[dtype]
    rounded = (x.float() * scale).clamp(-limit, limit).to(dtype)
    return rounded, turned_plainly(rounded)


@operator("fp8_turn", fake=lambda x8: x8.new_empty(x8.shape[1], padded(x8.shape[0])))
def turn(x8: Tensor) -> Tensor:
    """(N, C) -> (C, N')"""
    from spherelm.ops.triton.fp8_cast import turn_

    turned = x8.new_empty(x8.shape[1], padded(x8.shape[0]))
    turn_(x8, turned)
    return turned


def _product_like(a, b, inverse, slot_a, slot_b, dtype, fast):
    return a.new_empty(a.shape[0], b.shape[0], dtype=dtype)


@operator("fp8_product", fake=_product_like)
def multiply(
    a: Tensor, b: Tensor, inverse: Tensor, slot_a: int, slot_b: int, dtype: torch.dtype, fast: bool
) -> Tensor:
    """a bᵀ in `dtype`, with both scales undone: (N, K), (M, K) -> (N, M)

    `fast` accumulates in fewer bits, which is enough for sums over d_model.
    """
    if _WATCHERS:
        for watch in _WATCHERS:
            watch(a, inverse, slot_a)
            watch(b, inverse, slot_b)
    if a.is_cuda:
        rows = a.shape[0]
        if rows % 16:  # all three sizes must be multiples of 16
            a = F.pad(a.view(torch.uint8), (0, 0, 0, padded(rows) - rows)).view(a.dtype)
        scales = {"scale_a": inverse[slot_a, 0], "scale_b": inverse[slot_b, 0]}
        out = torch._scaled_mm(a, b.t(), **scales, out_dtype=dtype, use_fast_accum=fast)
        return out if out.shape[0] == rows else out[:rows]
    return (a.float() @ b.float().t() * (inverse[slot_a, 0] * inverse[slot_b, 0])).to(dtype)


def forward_product(x8: Tensor, product: Product, dtype: torch.dtype, out: bool) -> Tensor:
    """x Wᵀ for matrices applied to h, x W for an `out`put matrix."""
    slot, matrix = product.slot, product.turned if out else product.matrix
    return multiply(x8, matrix, product.inverse, slot + INPUT, slot + MATRIX, dtype, True)


def backward_products(
    x8_turned: Tensor, grad8: Tensor, grad8_turned: Tensor, product: Product, dtype: torch.dtype,
    out: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of the input, in `dtype`, and of the packed matrices, in float32."""
    slot, inverse = product.slot, product.inverse
    matrix = product.matrix if out else product.turned
    grad_x = multiply(grad8, matrix, inverse, slot + GRADIENT, slot + MATRIX, dtype, False)
    # Sums over all tokens, in float32 throughout.
    if out:
        operands, slots = (x8_turned, grad8_turned), (slot + INPUT, slot + GRADIENT)
    else:
        operands, slots = (grad8_turned, x8_turned), (slot + GRADIENT, slot + INPUT)
    return grad_x, multiply(*operands, inverse, *slots, torch.float32, False)
