"""Plain PyTorch over packed matrices, for torch.compile of a decode step.

With one token per sequence our kernels gain nothing, and the compiler cannot fuse across a call of
one. Matrices are packed as for the kernels, so that both can share a model's weights; all other
operations are the reference's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.ops import reference
from spherelm.ops.interface import Operand


def operand(
    *matrices: Tensor, factors: tuple[Tensor, Tensor] | None = None, held: object = None
) -> Operand:
    """The matrices of a product, packed into one."""
    matrices = reference.with_factors(matrices, factors)
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices)


def linear(x: Tensor, W: Operand) -> Tensor:
    """x W.  x: (..., n), W: (n, D) -> (..., D)"""
    product: Tensor = x @ W
    return product


def project_qkv(
    h: Tensor,
    W: Operand,
    rope: Tensor,
    s_qk: Tensor | None,
    kv_heads: int,
    qk_norm: bool,
    factors_on_q: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `interface.ProjectQKV`."""
    of_k = kv_heads * 2 * rope.shape[-1]
    q, k, v = F.linear(h, W).split((W.shape[0] - 2 * of_k, of_k, of_k), dim=-1)
    return reference.place_qkv(q, k, v, rope, s_qk, kv_heads, qk_norm, factors_on_q)


def project_swiglu(h: Tensor, W: Operand) -> Tensor:
    """u · SiLU(ν) with u = h W_u and ν = h W_ν.  h: (..., D) -> (..., F)"""
    return reference.swiglu(*F.linear(h, W).chunk(2, dim=-1))
