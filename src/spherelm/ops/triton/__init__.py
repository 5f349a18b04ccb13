"""The operations as Triton kernels, one file each, and the products between them.

The matrices of one product are packed into one, in the dtype of products (autocast's if it is on).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.ops import packed
from spherelm.ops.interface import Operand
from spherelm.ops.triton import qk
from spherelm.ops.triton.cross_entropy import linear_cross_entropy as _linear_cross_entropy
from spherelm.ops.triton.residual import residual_lerp
from spherelm.ops.triton.rmsnorm import add_rms_norm, branch_rms_norm, rms_norm
from spherelm.ops.triton.row_argmax import argmax
from spherelm.ops.triton.swiglu import swiglu as _swiglu

__all__ = ["add_rms_norm", "argmax", "branch_rms_norm", "residual_lerp", "rms_norm"]


def operand(
    *matrices: Tensor, factors: tuple[Tensor, Tensor] | None = None, held: object = None
) -> Operand:
    """The matrices of a product, packed into one; several are cast to the dtype of products."""
    one = packed.operand(*matrices, factors=factors)
    return one if len(matrices) == 1 else _in_product_dtype(one)


linear = packed.linear


def project_qkv(
    h: Tensor,
    W: Operand,
    rope: Tensor,
    s_qk: Tensor | None,
    kv_heads: int,
    qk_norm: bool,
    factors_on_q: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `interface.ProjectQKV`; q always takes both factors."""
    return qk.project_qkv(_in_product_dtype(h), W, rope.flatten(1, -2), s_qk, kv_heads, qk_norm)


def project_swiglu(h: Tensor, W: Operand) -> Tensor:
    """u · SiLU(ν) with u = h W_u and ν = h W_ν.  h: (..., D) -> (..., F)"""
    gated: Tensor = _swiglu(F.linear(h, W))
    return gated


def linear_cross_entropy(
    h: Tensor, E_output: Tensor, s_z: Tensor | None, targets: Tensor, reduction: str
) -> Tensor:
    """See `interface.Loss`; computed in chunks of tokens."""
    return _linear_cross_entropy(_in_product_dtype(h), E_output, s_z, targets, reduction)


def _in_product_dtype(x: Tensor) -> Tensor:
    """x in the dtype of matrix products: autocast's if it is on."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return x.to(torch.get_autocast_dtype(device))
    return x
