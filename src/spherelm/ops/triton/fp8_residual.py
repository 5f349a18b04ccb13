"""The backward of nGPT's update, with the gradient of y as an FP8 operand.

The arithmetic is that of `residual`. The gradient of the updated h comes in two parts, from the
next update and from the product that reads h. They are added here, since an FP8 product cannot
accumulate into its output. The gradient of y is written rounded, as the next products take it.

Shapes: N = B·T rows, D d_model.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.eight_bits import LARGEST
from spherelm.ops.triton.fp8_cast import as_bytes, rounded
from spherelm.ops.triton.residual import update_gradients
from spherelm.ops.triton.tiles import load_row, power_of_two, programs, store_row, sum_rows, warps

_PROGRAMS, _PER_THREAD = 6, 16
"""Programs per multiprocessor, and numbers of a row per thread."""


@triton.jit
def residual_backward_kernel_8(
    h_ptr, y_ptr, alpha_ptr, grad_ptr, more_ptr, grad_h_ptr, grad_y_ptr, partial_ptr, scale_ptr,
    amax_ptr, rows, D, LARGEST: tl.constexpr, MORE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < D
    alpha = tl.load(alpha_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(scale_ptr)
    grad_alpha = tl.zeros((BLOCK,), tl.float32)
    largest = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(program, rows, tl.num_programs(0), num_stages=3):
        h = load_row(h_ptr, row, D, columns, mask)
        y = load_row(y_ptr, row, D, columns, mask)
        g = load_row(grad_ptr, row, D, columns, mask)
        if MORE:
            g += load_row(more_ptr, row, D, columns, mask)
        grad_h, grad_y, of_row = update_gradients(h, y, alpha, g)
        grad_alpha += of_row
        largest = tl.maximum(largest, tl.abs(grad_y))
        store_row(grad_h_ptr, row, D, columns, mask, grad_h)
        grad_y = rounded(grad_y * scale, LARGEST)
        store_row(grad_y_ptr, row, D, columns, mask, grad_y)
    tl.store(partial_ptr + program * D + columns, grad_alpha, mask=mask)
    tl.atomic_max(amax_ptr, tl.max(largest), sem="relaxed")


def residual_backward(
    h: Tensor, y: Tensor, alpha: Tensor, grad: Tensor, more: Tensor | None, scale: Tensor,
    amax: Tensor, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of h, of y in FP8, and of alpha, given that of the result in two parts.

    h, y, grad, more: (N, D), alpha: (D,)
    """
    rows, D = h.shape
    count = programs(rows, h.device, per_multiprocessor=_PROGRAMS)
    grad_h = torch.empty_like(h)
    grad_y = torch.empty(rows, D, dtype=dtype, device=h.device)
    partial = torch.empty(count, D, dtype=torch.float32, device=h.device)
    residual_backward_kernel_8[(count,)](
        h, y, alpha, grad, grad if more is None else more, grad_h, as_bytes(grad_y), partial, scale,
        amax, rows, D, LARGEST=LARGEST[dtype], MORE=more is not None,
        BLOCK=power_of_two(D), num_warps=warps(D, _PER_THREAD),
    )  # fmt: skip
    return grad_h, grad_y, sum_rows(partial)
