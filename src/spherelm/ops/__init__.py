"""The operations a block is made of.

`reference` says in plain PyTorch what each one computes, and runs on a CPU; on CUDA each has a
Triton twin with its own backward in a file of its own. `dispatch` decides between the two.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.ops import reference
from spherelm.ops.attention import attend, force_attention
from spherelm.ops.dispatch import Execution, runs_triton, use
from spherelm.ops.reference import (
    normalize,
    qk_on_sphere,
    residual_riemannian,
    residual_slerp,
    rotate,
)

__all__ = [
    "Execution",
    "add_rms_norm",
    "argmax",
    "attend",
    "branch_rms_norm",
    "force_attention",
    "linear_cross_entropy",
    "normalize",
    "project_qkv",
    "project_swiglu",
    "qk_on_sphere",
    "residual_lerp",
    "residual_riemannian",
    "residual_slerp",
    "rms_norm",
    "rotate",
    "use",
]


def residual_lerp(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(h + α (Norm(y) − h)): the update of nGPT.  h, y: (B, T, D), alpha: (D,) -> (B, T, D)"""
    if runs_triton(h, y, alpha):
        from spherelm.ops.triton import residual

        return residual.residual_lerp(h, y, alpha)
    return reference.residual_lerp(h, y, alpha)


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean x²) · gain: GPT's norm.  x: (B, T, D), gain: (D,) -> (B, T, D)"""
    if runs_triton(x, gain):
        from spherelm.ops.triton import rmsnorm

        return rmsnorm.rms_norm(x, gain)
    return reference.rms_norm(x, gain)


def branch_rms_norm(h: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """h and its RMSNorm: the beginning of GPT's block.  h: (N, D) -> (N, D) each"""
    if runs_triton(h, gain):
        from spherelm.ops.triton import rmsnorm

        return rmsnorm.branch_rms_norm(h, gain)
    return h, reference.rms_norm(h, gain)


def add_rms_norm(h: Tensor, y: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """h + y and its RMSNorm: the middle of GPT's block.  h, y: (B, T, D) -> (B, T, D) each"""
    if runs_triton(h, y, gain):
        from spherelm.ops.triton import rmsnorm

        return rmsnorm.add_rms_norm(h, y, gain)
    total = h + y
    return total, reference.rms_norm(total, gain)


def project_qkv(
    h: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    rope: Tensor,
    s_qk: Tensor | None,
    qk_norm: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """q and k with position, on the sphere where s_qk is given, and v; all as attention wants them.

    Their scores are those of Norm(RoPE(q)) · s_qk and Norm(RoPE(k)) · s_qk. The kernels put both
    factors onto q.

    h: (B, T, D), rope: (2, T, K/2) or (2, B, T, K/2), s_qk: (G·K,)
    -> q: (B, T, H, K), k, v: (B, T, G, K)
    """
    d_k = 2 * rope.shape[-1]
    if runs_triton(h, W_q, W_k, W_v):
        from spherelm.ops.triton import qk

        h, W = _in_product_dtype(h), _in_product_dtype(torch.cat((W_q, W_k, W_v)))
        return qk.project_qkv(h, W, rope.flatten(1, -2), s_qk, W_k.shape[0] // d_k, qk_norm)
    q, k, v = (F.linear(h, W).unflatten(-1, (-1, d_k)) for W in (W_q, W_k, W_v))
    if s_qk is None:
        return rotate(q, rope), rotate(k, rope), v
    return (*qk_on_sphere(q, k, rope, s_qk, qk_norm), v)


def project_swiglu(h: Tensor, W_u: Tensor, W_nu: Tensor) -> Tensor:
    """u · SiLU(ν) with u = h W_u and ν = h W_ν.  h: (B, T, D), W_u, W_nu: (F, D) -> (B, T, F)"""
    if runs_triton(h, W_u, W_nu):
        from spherelm.ops.triton import swiglu

        return swiglu.swiglu(F.linear(h, _in_product_dtype(torch.cat((W_u, W_nu)))))
    return reference.swiglu(F.linear(h, W_u), F.linear(h, W_nu))


def linear_cross_entropy(
    h: Tensor,
    E_output: Tensor,
    s_z: Tensor | None,
    targets: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """Cross-entropy of the logits z = (E_output h) · s_z against targets: their sum or mean.

    h: (B, T, D), E_output: (V, D), s_z: (V,), targets: (B, T) -> scalar
    """
    if runs_triton(h, E_output):
        from spherelm.ops.triton import cross_entropy

        h = _in_product_dtype(h)
        return cross_entropy.linear_cross_entropy(
            h, E_output, s_z, targets, ignore_index, reduction
        )
    return reference.linear_cross_entropy(h, E_output, s_z, targets, ignore_index, reduction)


def argmax(x: Tensor) -> Tensor:
    """The index of the largest number of each row, the first of several: (N, V) -> (N,)"""
    if runs_triton(x):
        from spherelm.ops.triton import row_argmax

        return row_argmax.argmax(x)
    return x.argmax(-1)


def _in_product_dtype(x: Tensor) -> Tensor:
    """x in the dtype of matrix products: autocast's where it is on."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return x.to(torch.get_autocast_dtype(device))
    return x
