"""SwiGLU u · SiLU(ν) from the packed projection [u | ν], in one pass each way.

With σ = sigmoid(ν) and g the gradient of the result:

    du = g ν σ        dν = g u σ (1 + ν (1 − σ))

The backward recomputes SiLU from ν, which it reads anyway: only the projection is kept.

Shapes: N = B·T rows, F d_mlp.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.triton.tiles import as_rows, contiguous_like, derive, load_pair, load_tile

_BLOCK = 1024
_WARPS = 4


@triton.jit
def gated(u, nu, sigma):
    """u ν σ"""
    return u * nu * sigma


@triton.jit
def gate_gradients(u, nu, scaled_nu, sigma, g):
    """du and dν; or, if u and ν come without their factors s_u and s_ν, du / s_ν and dν / s_u.

    scaled_nu: s_ν ν, of which σ is the sigmoid
    """
    g *= sigma
    return g * nu, g * u * (1 + scaled_nu * (1 - sigma))


@triton.jit
def swiglu_kernel(packed_ptr, out_ptr, F, BLOCK: tl.constexpr):
    blocks = tl.cdiv(F, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = columns < F
    u, nu = load_pair(packed_ptr + row * 2 * F + columns, F, mask, False)
    tl.store(out_ptr + row * F + columns, gated(u, nu, tl.sigmoid(nu)), mask=mask)


@triton.jit
def swiglu_backward_kernel(packed_ptr, grad_ptr, out_ptr, F, BLOCK: tl.constexpr):
    blocks = tl.cdiv(F, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = columns < F
    u, nu = load_pair(packed_ptr + row * 2 * F + columns, F, mask, False)
    g = load_tile(grad_ptr + row * F + columns, mask, False)
    grad_u, grad_nu = gate_gradients(u, nu, nu, tl.sigmoid(nu), g)
    tl.store(out_ptr + row * 2 * F + columns, grad_u, mask=mask)
    tl.store(out_ptr + row * 2 * F + F + columns, grad_nu, mask=mask)


@torch.library.custom_op("spherelm::swiglu", mutates_args=())
def swiglu(packed: Tensor) -> Tensor:
    """packed: (..., 2F) -> (..., F)"""
    rows_of = as_rows(packed)
    rows, F = rows_of.shape[0], rows_of.shape[1] // 2
    out = torch.empty(rows, F, dtype=packed.dtype, device=packed.device)
    swiglu_kernel[(rows * triton.cdiv(F, _BLOCK),)](rows_of, out, F, BLOCK=_BLOCK, num_warps=_WARPS)
    return out.view(*packed.shape[:-1], F)


@swiglu.register_fake
def _(packed: Tensor) -> Tensor:
    return packed.new_empty(*packed.shape[:-1], packed.shape[-1] // 2)


@torch.library.custom_op("spherelm::swiglu_backward", mutates_args=())
def swiglu_backward(packed: Tensor, grad: Tensor) -> Tensor:
    """The gradient of the packed projection."""
    rows_of, grad_rows = as_rows(packed), as_rows(grad)
    rows, F = grad_rows.shape
    out = torch.empty_like(rows_of)
    swiglu_backward_kernel[(rows * triton.cdiv(F, _BLOCK),)](
        rows_of, grad_rows, out, F, BLOCK=_BLOCK, num_warps=_WARPS
    )
    return out.view(packed.shape)


@swiglu_backward.register_fake
def _(packed, grad):
    return contiguous_like(packed)


derive(swiglu, swiglu_backward)
