"""The rows of E_input for some tokens, in the precision of the stream, and their gradient.

The gradient of a row is the sum over the tokens that read it. Tokens are put in order first, so
that each row has one program, which reads its tokens one after another: no atomics, so it repeats
to the bit, and every row is written once.

Shapes: N = B·T tokens, D d_model, V vocabulary.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.kernels.tiles import as_rows, block, load_row, store_row, warps

_TILE = 16384
"""Numbers of gradients that a program holds at a time."""


@triton.jit
def embedding_kernel(tokens_ptr, E_ptr, out_ptr, V, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(tokens_ptr + row)
    columns = tl.arange(0, BLOCK)
    mask = columns < D
    known = (token >= 0) & (token < V)
    h = load_row(E_ptr, tl.where(known, token, 0), D, columns, mask)
    # PyTorch would stop the process here; NaN stops the run where its loss is looked at.
    store_row(out_ptr, row, D, columns, mask, tl.where(known, h, float("nan")))


@triton.jit
def embedding_backward_kernel(
    starts_ptr, order_ptr, grad_ptr, out_ptr, D, TOKENS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    start = tl.load(starts_ptr + row)
    end = tl.load(starts_ptr + row + 1)
    columns = tl.arange(0, BLOCK)
    mask = columns < D
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(start, end, TOKENS):
        i = first + tl.arange(0, TOKENS)
        token = tl.load(order_ptr + i, mask=i < end, other=0)
        at = grad_ptr + token[:, None] * D + columns[None, :]
        grads = tl.load(at, mask=(i < end)[:, None] & mask[None, :], other=0.0)
        total += tl.sum(grads.to(tl.float32), axis=0)
    store_row(out_ptr, row, D, columns, mask, total)


@torch.library.custom_op("spherelm::embedding", mutates_args=())
def embedding(tokens: Tensor, E: Tensor, dtype: torch.dtype) -> Tensor:
    """tokens: (N,), E: (V, D) -> (N, D) in `dtype`"""
    V, D = E.shape
    out = torch.empty(tokens.shape[0], D, dtype=dtype, device=E.device)
    embedding_kernel[(tokens.shape[0],)](
        tokens, E, out, V, D, BLOCK=block(D), num_warps=warps(D, 16)
    )
    return out


@embedding.register_fake
def _(tokens: Tensor, E: Tensor, dtype: torch.dtype) -> Tensor:
    return E.new_empty(tokens.shape[0], E.shape[1], dtype=dtype)


@torch.library.custom_op("spherelm::embedding_backward", mutates_args=())
def embedding_backward(tokens: Tensor, grad: Tensor, V: int, dtype: torch.dtype) -> Tensor:
    """The gradient of E, (V, D) in `dtype`; summed in float32."""
    grad = as_rows(grad)
    D = grad.shape[1]
    ordered, order = torch.sort(tokens.int(), stable=True)
    edges = torch.arange(V + 1, dtype=torch.int32, device=tokens.device)
    starts = torch.searchsorted(ordered, edges, out_int32=True)
    out = torch.empty(V, D, dtype=dtype, device=grad.device)
    together = max(1, _TILE // block(D))
    embedding_backward_kernel[(V,)](
        starts, order, grad, out, D, TOKENS=together, BLOCK=block(D),
        num_warps=warps(together * block(D), 64),
    )  # fmt: skip
    return out


@embedding_backward.register_fake
def _(tokens: Tensor, grad: Tensor, V: int, dtype: torch.dtype) -> Tensor:
    return grad.new_empty(V, grad.shape[1], dtype=dtype)


def _setup_context(ctx, inputs, output) -> None:
    tokens, E, _ = inputs
    ctx.save_for_backward(tokens)
    ctx.V, ctx.E_dtype = E.shape[0], E.dtype


def _backward(ctx, grad):
    return None, embedding_backward(ctx.saved_tensors[0], grad, ctx.V, ctx.E_dtype), None


embedding.register_autograd(_backward, setup_context=_setup_context)


def embed(tokens: Tensor, E: Tensor, dtype: torch.dtype) -> Tensor:
    """tokens: (B, T), E: (V, D) -> (B, T, D) in `dtype`"""
    rows = embedding(tokens.flatten().contiguous(), E.contiguous(), dtype)
    return rows.view(*tokens.shape, E.shape[1])
