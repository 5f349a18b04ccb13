"""Cross-entropy of a linear layer without its logits: chunks of tokens, gradients on the way.

The logits z = (E_output · s_z) h of a chunk are made, turned into dL/dz = softmax(z) − onehot in
place, multiplied into the gradients of h and of the folded matrix Ê = s_z · E_output, and
forgotten: at most `_CHUNK_LOGITS` logits exist at a time instead of B·T·V, and none is made twice.
dÊ is accumulated in float32, and gives both gradients of the fold exactly:

    dE_output = s_z dÊ        ds_z = Σ_d E_output dÊ

The gradients are those of the sum over tokens; the backward multiplies them by what comes in.

Shapes: N = B·T rows, D d_model, V vocabulary.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_CHUNK_LOGITS = 2**28
"""512 MiB of bf16 logits at a time: 8192 tokens of a vocabulary of 32k, enough to fill the GPU."""
_BLOCK = 4096
_WARPS = 8


@triton.jit
def cross_entropy_kernel(
    logits_ptr, targets_ptr, loss_ptr, V, ignore_index,
    GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss of one row, and dL/dz over its logits."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    counts = target != ignore_index
    z_ptr = logits_ptr + row * V

    # Maximum and sum of exponentials in one reading; each lane keeps its own, joined at the end.
    largest = tl.full((BLOCK,), -1e30, tl.float32)  # finite: ∞ − ∞ would be NaN
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < V
        z = tl.load(z_ptr + columns, mask=mask, other=-1e30).to(tl.float32)
        larger = tl.maximum(largest, z)
        total = total * tl.exp(largest - larger) + tl.where(mask, tl.exp(z - larger), 0.0)
        largest = larger
    row_largest = tl.max(largest)
    row_total = tl.sum(total * tl.exp(largest - row_largest))
    z_target = tl.load(z_ptr + tl.where(counts, target, 0)).to(tl.float32)
    loss = tl.log(row_total) + row_largest - z_target
    tl.store(loss_ptr + row, tl.where(counts, loss, 0.0))

    if GRADIENT:
        scale = tl.where(counts, 1.0, 0.0)
        for start in range(0, V, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < V
            z = tl.load(z_ptr + columns, mask=mask, other=0.0).to(tl.float32)
            gradient = tl.exp(z - row_largest) / row_total - tl.where(columns == target, 1.0, 0.0)
            tl.store(z_ptr + columns, gradient * scale, mask=mask)


def _add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b in float32, whatever the precision of a and b."""
    if a.is_cuda and a.dtype != torch.float32:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(a.float(), b.float())


@torch.library.custom_op("spherelm::linear_cross_entropy", mutates_args=())
def summed_loss(
    h: Tensor,
    E_output: Tensor,
    s_z: Tensor | None,
    targets: Tensor,
    ignore_index: int,
    with_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The summed loss, and its gradients: of h, of Ê in float32, of s_z (empty where not asked)."""
    N, V = h.shape[0], E_output.shape[0]
    folded = torch.empty_like(E_output, dtype=h.dtype)
    if s_z is None:
        folded.copy_(E_output)
    else:
        torch.mul(E_output, s_z[:, None], out=folded)

    losses = torch.empty(N, dtype=torch.float32, device=h.device)
    grad_h = torch.empty_like(h) if with_gradients else h.new_empty(0)
    grad_E = h.new_zeros(E_output.shape if with_gradients else (0,), dtype=torch.float32)
    chunk = max(1, min(N, _CHUNK_LOGITS // V))
    for start in range(0, N, chunk):
        part = slice(start, min(N, start + chunk))
        logits = h[part] @ folded.t()
        cross_entropy_kernel[(logits.shape[0],)](
            logits, targets[part], losses[part], V, ignore_index,
            GRADIENT=with_gradients, BLOCK=_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
        if with_gradients:
            torch.mm(logits, folded, out=grad_h[part])
            _add_product_(grad_E, logits.t(), h[part])
        del logits  # before the next chunk's are made
    if with_gradients and s_z is not None:
        grad_s = torch.linalg.vecdot(grad_E, E_output.float())
    else:
        grad_s = h.new_empty(0, dtype=torch.float32)
    return losses.sum(), grad_h, grad_E, grad_s


@summed_loss.register_fake
def _(
    h: Tensor,
    E_output: Tensor,
    s_z: Tensor | None,
    targets: Tensor,
    ignore_index: int,
    with_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide = {"dtype": torch.float32, "device": h.device}
    return (
        torch.empty((), **wide),  # type: ignore[call-overload]
        torch.empty_like(h) if with_gradients else h.new_empty(0),
        torch.empty(E_output.shape if with_gradients else (0,), **wide),  # type: ignore[call-overload]
        torch.empty(s_z.shape if with_gradients and s_z is not None else (0,), **wide),  # type: ignore[call-overload]
    )


def _setup_context(ctx, inputs, output) -> None:
    _, E_output, s_z, *_ = inputs
    _, grad_h, grad_E, grad_s = output
    ctx.mark_non_differentiable(grad_h, grad_E, grad_s)
    ctx.save_for_backward(grad_h, grad_E, grad_s, s_z)
    ctx.E_dtype = E_output.dtype


def _backward(ctx, grad, *_):
    grad_h, grad_E, grad_s, s_z = ctx.saved_tensors
    if s_z is None:
        return grad_h * grad, (grad_E * grad).to(ctx.E_dtype), None, None, None, None
    grad_E_output = grad_E * (s_z.float() * grad)[:, None]
    return (
        (grad_h * grad).to(grad_h.dtype),
        grad_E_output.to(ctx.E_dtype),
        (grad_s * grad).to(s_z.dtype),
        None,
        None,
        None,
    )


summed_loss.register_autograd(_backward, setup_context=_setup_context)


def linear_cross_entropy(
    h: Tensor,
    E_output: Tensor,
    s_z: Tensor | None,
    targets: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """What `reference.linear_cross_entropy` says, in chunks."""
    with_gradients = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (h, E_output, s_z)
    )
    flat = targets.flatten()
    total = summed_loss(
        h.flatten(0, -2).contiguous(),
        E_output,
        None if s_z is None else s_z.contiguous(),
        flat.contiguous(),
        ignore_index,
        with_gradients,
    )[0]
    return total if reduction == "sum" else total / (flat != ignore_index).sum().clamp_min(1)
