"""Cross-entropy of a linear layer in chunks of tokens, with gradients computed in the forward.

The logits z = (E_output · s_z) h of a chunk are computed, replaced in place by dL/dz = softmax(z) −
onehot, multiplied into the gradients of h and of the folded matrix Ê = s_z · E_output, and freed:
at most `_CHUNK_LOGITS` logits exist at a time instead of B·T·V, and none is computed twice. dÊ is
accumulated in float32, and gives both gradients of the fold exactly:

    dE_output = s_z dÊ        ds_z = Σ_d E_output dÊ

These are the gradients of the sum over tokens; the backward multiplies them by the incoming one.

Shapes: N = B·T rows, D d_model, V vocabulary.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.names import IGNORE_INDEX
from spherelm.ops.reference import first_derivative
from spherelm.ops.triton.tiles import power_of_two, warps

_CHUNK_LOGITS = 2**28
"""512 MiB of bf16 logits at a time: 8192 tokens of a vocabulary of 32k, enough to fill the GPU."""
_BLOCK, _WARPS = 4096, 16
_SCALED_TOGETHER = 2048
"""Numbers that a program scales."""


@triton.jit
def cross_entropy_kernel(
    logits_ptr, targets_ptr, loss_ptr, V, ignore_index,
    GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss of one row, and dL/dz in place of its logits, which are then still in the cache."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    counts = target != ignore_index
    z_ptr = logits_ptr + row * V

    # Maximum and sum of exponentials in one pass; each lane keeps its own, merged at the end.
    largest = tl.full((BLOCK,), -1e30, tl.float32)  # finite: ∞ − ∞ would be NaN
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < V
        z = tl.load(z_ptr + columns, mask=mask, other=-1e30).to(tl.float32)
        above = z > largest  # a single exponential serves both cases
        e = tl.exp(-tl.abs(z - largest))
        total = tl.where(above, total * e + 1, total + tl.where(mask, e, 0.0))
        largest = tl.maximum(largest, z)
    row_largest = tl.max(largest)
    row_total = tl.sum(total * tl.exp(largest - row_largest))
    z_target = tl.load(z_ptr + tl.where(counts, target, 0)).to(tl.float32)
    lse = tl.log(row_total) + row_largest
    tl.store(loss_ptr + row, tl.where(counts, lse - z_target, 0.0))

    if GRADIENT:
        scale = tl.where(counts, 1.0, 0.0)
        for start in range(0, V, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < V
            z = tl.load(z_ptr + columns, mask=mask, other=0.0).to(tl.float32)
            gradient = tl.exp(z - lse) - tl.where(columns == target, 1.0, 0.0)
            tl.store(z_ptr + columns, gradient * scale, mask=mask)


@triton.jit
def scale_rows_kernel(
    x_ptr, row_factor_ptr, factor_ptr, out_ptr, other_ptr, dot_ptr, rows, D,
    ROW_FACTOR: tl.constexpr, FACTOR: tl.constexpr, DOT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = x · row_factor · factor, dot = (x · other) factor; each factor is optional."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (columns < D)[None, :]
    at = row.to(tl.int64)[:, None] * D + columns[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    if FACTOR:
        x *= tl.load(factor_ptr).to(tl.float32)
    if DOT:
        other = tl.load(other_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dot_ptr + row, tl.sum(x * other, axis=1), mask=row < rows)
    if ROW_FACTOR:
        x *= tl.load(row_factor_ptr + row, mask=row < rows, other=0.0).to(tl.float32)[:, None]
    tl.store(out_ptr + at, x, mask=mask)


def _scale_rows(
    x: Tensor,
    dtype: torch.dtype,
    row_factor: Tensor | None = None,
    factor: Tensor | None = None,
    other: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x · row_factor · factor in `dtype`, and the products of rows (x · other) factor.

    x, other: (N, D), row_factor: (N,), factor: scalar -> (N, D), (N,); empty without `other`
    """
    rows, D = x.shape
    out = torch.empty(rows, D, dtype=dtype, device=x.device)
    dot = torch.empty(0 if other is None else rows, dtype=torch.float32, device=x.device)
    size = power_of_two(D)
    rows_together = max(1, _SCALED_TOGETHER // size)
    scale_rows_kernel[(triton.cdiv(rows, rows_together),)](
        x, x if row_factor is None else row_factor, x if factor is None else factor, out,
        x if other is None else other, dot, rows, D,
        ROW_FACTOR=row_factor is not None, FACTOR=factor is not None, DOT=other is not None,
        ROWS=rows_together, BLOCK=size, num_warps=warps(rows_together * size, 16),
    )  # fmt: skip
    return out, dot


def _add_product_(total: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """total += a @ b in float32, whatever the dtype of a and b; the `first` overwrites total."""
    beta = 0 if first else 1
    if a.is_cuda and a.dtype != torch.float32:
        torch.addmm(total, a, b, beta=beta, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(a.float(), b.float(), beta=beta)


@torch.library.custom_op("spherelm::linear_cross_entropy", mutates_args=())
def summed_loss(
    h: Tensor, E_output: Tensor, s_z: Tensor | None, targets: Tensor, with_gradients: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss, and its gradients: of h, and of Ê in float32 (empty if not asked for)."""
    N, V = h.shape[0], E_output.shape[0]
    folded = E_output.to(h.dtype) if s_z is None else _scale_rows(E_output, h.dtype, s_z)[0]
    losses = torch.empty(N, dtype=torch.float32, device=h.device)
    grad_h = torch.empty_like(h) if with_gradients else h.new_empty(0)
    grad_E = h.new_empty(E_output.shape if with_gradients else (0,), dtype=torch.float32)
    chunk = max(1, min(N, _CHUNK_LOGITS // V))
    for start in range(0, N, chunk):
        part = slice(start, min(N, start + chunk))
        logits = h[part] @ folded.t()
        cross_entropy_kernel[(logits.shape[0],)](
            logits, targets[part], losses[part], V, IGNORE_INDEX,
            GRADIENT=with_gradients, BLOCK=_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
        if with_gradients:
            torch.mm(logits, folded, out=grad_h[part])
            _add_product_(grad_E, logits.t(), h[part], first=start == 0)
        del logits  # before the next chunk's are made
    return losses.sum(), grad_h, grad_E


@summed_loss.register_fake
def _(h, E_output, s_z, targets, with_gradients):
    return (
        h.new_empty((), dtype=torch.float32),
        torch.empty_like(h) if with_gradients else h.new_empty(0),
        h.new_empty(E_output.shape if with_gradients else (0,), dtype=torch.float32),
    )


@torch.library.custom_op("spherelm::linear_cross_entropy_backward", mutates_args=())
def summed_loss_backward(
    grad_h: Tensor, grad_E: Tensor, E_output: Tensor, s_z: Tensor | None, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of h, E_output and s_z (empty for GPT), given that of the sum."""
    other = None if s_z is None else E_output
    grad_E_output, grad_s_z = _scale_rows(grad_E, E_output.dtype, s_z, grad, other)
    return _scale_rows(grad_h, grad_h.dtype, factor=grad)[0], grad_E_output, grad_s_z


@summed_loss_backward.register_fake
def _(grad_h, grad_E, E_output, s_z, grad):
    rows = 0 if s_z is None else E_output.shape[0]
    return (
        torch.empty_like(grad_h),
        torch.empty_like(E_output, memory_format=torch.contiguous_format),
        E_output.new_empty(rows, dtype=torch.float32),
    )


def _setup_context(ctx, inputs, output) -> None:
    _, E_output, s_z, *_ = inputs
    _, grad_h, grad_E = output
    ctx.mark_non_differentiable(grad_h, grad_E)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad_h, grad_E, E_output, s_z)


@first_derivative
def _backward(ctx, grad, *_):
    s_z = ctx.saved_tensors[-1]
    grad_h, grad_E_output, grad_s_z = summed_loss_backward(*ctx.saved_tensors, grad)
    of_s_z = None if s_z is None else grad_s_z.to(s_z.dtype)
    return grad_h, grad_E_output, of_s_z, None, None


summed_loss.register_autograd(_backward, setup_context=_setup_context)


def linear_cross_entropy(
    h: Tensor, E_output: Tensor, s_z: Tensor | None, targets: Tensor, reduction: str
) -> Tensor:
    """See `reference.linear_cross_entropy`; computed in chunks."""
    with_gradients = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (h, E_output, s_z)
    )
    flat = targets.flatten()
    total = summed_loss(
        h.flatten(0, -2).contiguous(),
        E_output.contiguous(),
        None if s_z is None else s_z.contiguous(),
        flat.contiguous(),
        with_gradients,
    )[0]
    return total if reduction == "sum" else total / (flat != IGNORE_INDEX).sum().clamp_min(1)
