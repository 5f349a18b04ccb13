"""How rows are divided on the GPU: block sizes, warps and the number of programs."""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.reference import first_derivative


def power_of_two(length: int) -> int:
    """The smallest power of two that is at least `length`."""
    return int(triton.next_power_of_2(length))


def warps(length: int, per_thread: int) -> int:
    """Warps for a row, such that each thread holds about `per_thread` of its numbers."""
    return max(1, min(16, power_of_two(length) // (32 * per_thread)))


def programs(rows: int, device: torch.device, per_multiprocessor: int) -> int:
    """How many programs share the rows, if each keeps partial sums over those it visits."""
    if device.type != "cuda":  # the interpreter: more than one, so that tests cover adding them up
        return min(rows, 3)
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return min(rows, count * per_multiprocessor)


def to_device(table: Tensor, device: torch.device) -> Tensor:
    """A table on the device, copied without waiting for the work queued there."""
    return table.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else table


def as_rows(x: Tensor) -> Tensor:
    """(..., D) -> (N, D), contiguous; a view if x already is."""
    return x.reshape(-1, x.shape[-1]).contiguous()


def derive(operator, backward) -> None:
    """Let `backward(*inputs, *grads)` be the derivative of `operator`, which saves its inputs."""
    operator.register_autograd(
        first_derivative(lambda ctx, *grads: backward(*ctx.saved_tensors, *grads)),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )


def contiguous_like(x: Tensor) -> Tensor:
    """An empty contiguous tensor like x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_SUM_ROWS, _SUM_COLUMNS = 64, 16


@triton.jit
def sum_rows_kernel(x_ptr, out_ptr, rows, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & (column < D)[None, :]
        total += tl.load(x_ptr + row[:, None] * D + column[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + column, tl.sum(total, axis=0), mask=column < D)


def sum_rows(partial: Tensor) -> Tensor:
    """The sum of the programs' partial sums: (programs, D) -> (D,), always in the same order."""
    rows, D = partial.shape
    out = torch.empty(D, dtype=torch.float32, device=partial.device)
    columns = _SUM_COLUMNS if partial.is_cuda else 512  # the interpreter's cost is per program
    sum_rows_kernel[(triton.cdiv(D, columns),)](
        partial, out, rows, D, ROWS=_SUM_ROWS, COLUMNS=columns, num_warps=4
    )
    return out


@triton.jit
def load_tile(pointer, mask, EVEN: tl.constexpr):
    """A tile in float32; zero where `mask` is false. EVEN: all tiles are full, so no mask."""
    if EVEN:
        return tl.load(pointer).to(tl.float32)
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_tile(pointer, x, mask, EVEN: tl.constexpr):
    """Store a tile where `mask` is true. EVEN: all tiles are full, so no mask."""
    if EVEN:
        tl.store(pointer, x)
    else:
        tl.store(pointer, x, mask=mask)


@triton.jit
def load_pair(pointer, apart, mask, EVEN: tl.constexpr):
    """Two tiles in float32, `apart` numbers from each other."""
    return load_tile(pointer, mask, EVEN), load_tile(pointer + apart, mask, EVEN)


@triton.jit
def load_row(pointer, row, stride, columns, mask):
    """One row in float32; 0 beyond its end."""
    here = pointer + tl.cast(row, tl.int64) * stride + columns
    return tl.load(here, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_row(pointer, row, stride, columns, mask, value):
    """One row, rounded to the dtype of its destination."""
    tl.store(pointer + tl.cast(row, tl.int64) * stride + columns, value, mask=mask)
