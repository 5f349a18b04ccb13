"""One step of AdamW for many tensors in one launch, retraction to the sphere included.

    g ← factor · g      m ← β₁ m + (1−β₁) g        v ← β₂ v + (1−β₂) g²
    p ← p (1 − lr·wd) − lr/(1−β₁ᵗ) · m / (sqrt(v/(1−β₂ᵗ)) + ε)        p ← Norm(p) on the sphere

Every row is read and written once: 28 bytes per parameter in float32; separate passes for clipping
and retraction would add 20. Programs find their tensor in a table of addresses.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.reference import NORM_EPS
from spherelm.ops.triton.tiles import power_of_two, to_device, warps

_EPS = tl.constexpr(NORM_EPS)
_ROWS = tl.constexpr(4)
"""Rows that one program updates."""
_VECTOR_ROW = 1024
"""Vectors are updated as rows of this length."""


class Entry(NamedTuple):
    """A parameter with its gradient and moments, all contiguous and of one shape."""

    p: Tensor
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


@triton.jit
def _tensor(addresses_ptr, index, DTYPE: tl.constexpr, ALIGNED: tl.constexpr):
    pointer = tl.load(addresses_ptr + index).to(tl.pointer_type(DTYPE))
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def adamw_kernel(
    addresses_ptr, sizes_ptr, owner_ptr, first_row_ptr, factor_ptr,
    decay, weight_1, beta_2, weight_2, step_size, inverse_root, eps, D,
    P: tl.constexpr, GRAD: tl.constexpr, MOMENT: tl.constexpr, SPHERE: tl.constexpr,
    VECTORS: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    owner = tl.load(owner_ptr + tl.program_id(0))
    first_row = tl.load(first_row_ptr + tl.program_id(0))
    size = tl.load(sizes_ptr + owner)
    p_ptr = _tensor(addresses_ptr, owner * 4, P, ALIGNED)
    grad_ptr = _tensor(addresses_ptr, owner * 4 + 1, GRAD, ALIGNED)
    m_ptr = _tensor(addresses_ptr, owner * 4 + 2, MOMENT, ALIGNED)
    v_ptr = _tensor(addresses_ptr, owner * 4 + 3, MOMENT, ALIGNED)
    factor = tl.load(factor_ptr)
    columns = tl.arange(0, BLOCK)
    for row in range(first_row, first_row + _ROWS):
        start = tl.cast(row, tl.int64) * D
        at = start + columns
        # One condition for the whole row keeps loads of 16 bytes; only the last row of a vector may
        # be short.
        mask = (columns < D) & ((at if VECTORS else start) < size)
        g = tl.load(grad_ptr + at, mask=mask, other=0.0).to(tl.float32) * factor
        p = tl.load(p_ptr + at, mask=mask, other=0.0).to(tl.float32) * decay
        m = tl.load(m_ptr + at, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=mask, other=0.0).to(tl.float32)
        m += weight_1 * (g - m)
        v = v * beta_2 + weight_2 * g * g
        p -= step_size * m / (tl.sqrt(v) * inverse_root + eps)
        if SPHERE:
            p = p / tl.maximum(tl.sqrt(tl.sum(p * p)), _EPS)
        tl.store(p_ptr + at, p, mask=mask)
        tl.store(m_ptr + at, m, mask=mask)
        tl.store(v_ptr + at, v, mask=mask)


@lru_cache(maxsize=64)
def _programs(
    sizes: tuple[int, ...], row_length: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes of the tensors, and for each program the tensor it works on and its first row there."""
    counts = torch.tensor([triton.cdiv(triton.cdiv(n, row_length), _ROWS.value) for n in sizes])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    first = torch.arange(len(owner)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return (
        torch.tensor(sizes).to(device),
        owner.int().to(device),
        (first * _ROWS.value).int().to(device),
    )


def _addresses(entries: Sequence[Entry]) -> Tensor:
    """The addresses of all tensors, on the host: (entries, 4)"""
    return torch.tensor([[x.data_ptr() for x in entry] for entry in entries])


_DTYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


def adamw_(
    tensors: Iterable[Sequence[Tensor]],
    *,
    on_sphere: bool,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    step: int,
    factor: Tensor | None = None,
) -> None:
    """See `reference_adamw.adamw_`: entries of (p, gradient, m, v), updated in place.

    `step` counts from 1; `factor`, a float32 scalar on the device, multiplies the gradients.
    """
    entries = [Entry(*(x.contiguous() for x in entry)) for entry in tensors]
    if factor is None:
        factor = torch.ones((), device=entries[0].p.device)
    kinds = defaultdict(list)
    for entry in entries:
        vectors = entry.p.ndim < 2
        row = _VECTOR_ROW if vectors else entry.p.shape[-1]
        kinds[(vectors, row, entry.p.dtype, entry.grad.dtype, entry.exp_avg.dtype)].append(entry)
    for (vectors, row, p_dtype, grad_dtype, moment_dtype), members in kinds.items():
        device = members[0].p.device
        sizes, owner, first_row = _programs(tuple(e.p.numel() for e in members), row, device)
        if not len(owner):
            continue
        addresses = _addresses(members)
        aligned = row % 16 == 0 and bool((addresses % 16 == 0).all())
        adamw_kernel[(len(owner),)](
            to_device(addresses, device), sizes, owner, first_row, factor,
            1 - lr * weight_decay, 1 - betas[0], betas[1], 1 - betas[1],
            lr / (1 - betas[0] ** step), 1 / (1 - betas[1] ** step) ** 0.5, eps, row,
            P=_DTYPES[p_dtype], GRAD=_DTYPES[grad_dtype], MOMENT=_DTYPES[moment_dtype],
            SPHERE=on_sphere, VECTORS=vectors, ALIGNED=aligned,
            BLOCK=power_of_two(row), num_warps=warps(row, 8),
        )  # fmt: skip
