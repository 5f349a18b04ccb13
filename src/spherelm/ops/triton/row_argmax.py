"""The index of the largest number of each row, with one program per row.

For one row of 32,000 this takes 3.9 µs on an H200, torch.argmax 8.9, of a decode step of 430 µs.

Shapes: N rows, V numbers each.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.triton.tiles import power_of_two

_LARGEST_BLOCK = 32768


@triton.jit
def argmax_kernel(x_ptr, out_ptr, V, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full([], -float("inf"), tl.float32)
    index = tl.full([], 0, tl.int32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + columns, mask=columns < V, other=-float("inf"))
        value, at = tl.max(x.to(tl.float32), axis=0, return_indices=True)
        index = tl.where(value > best, start + at, index)
        best = tl.maximum(best, value)
    tl.store(out_ptr + row, index.to(tl.int64))


def argmax(x: Tensor) -> Tensor:
    """x: (N, V) -> (N,); the first if several are largest"""
    rows, V = x.shape
    out = torch.empty(rows, dtype=torch.long, device=x.device)
    size = min(power_of_two(V), _LARGEST_BLOCK)
    argmax_kernel[(rows,)](
        x.contiguous(), out, V, BLOCK=size, num_warps=max(1, min(32, size // 1024))
    )
    return out
