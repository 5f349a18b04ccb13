"""Each operation of a block in plain PyTorch: the specification, and what runs on a CPU.

Lengths, softmax and loss are computed in float32 whatever the inputs are (float64 stays float64),
and results come back in the dtype of the stream they belong to.

Shapes: B batch, T time, D d_model, H heads, G heads of k and v, K head dimension, F d_mlp,
V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

NORM_EPS = 1e-12
"""Lengths below this count as this: Norm(0) is 0, not NaN. Far below any length that occurs."""

RMS_NORM_EPS = 1e-6


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def _unit(x: Tensor) -> Tensor:
    """x / ‖x‖ over the last dimension, in x's own precision."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(NORM_EPS)


def normalize(x: Tensor) -> Tensor:
    """Norm(x) = x / ‖x‖ over the last dimension.  x: (..., D) -> (..., D)"""
    return _unit(at_least_float32(x)).to(x.dtype)


def residual_lerp(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(h + α (Norm(y) − h)): the update of nGPT, with y the output of a block.

    h, y: (B, T, D), alpha: (D,) -> (B, T, D)
    """
    a, b = at_least_float32(h), _unit(at_least_float32(y))
    return _unit(torch.lerp(a, b, alpha.to(a.dtype))).to(h.dtype)


def residual_slerp(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(sin((1−α)θ)/sin θ · h + sin(αθ)/sin θ · Norm(y)), θ the angle between h and y.

    With one α for all coordinates this is the geodesic and Norm only removes rounding. The angle
    comes from half-chords, 2·atan2(‖h−b‖, ‖h+b‖), which is exact where arccos is not; the ratios of
    sines are ratios of sinc, which have a limit at θ = 0. At opposite points there is no shortest
    path: the denominator is held away from zero, and where nothing is left h stays where it is.

    h, y: (B, T, D), alpha: (D,) -> (B, T, D)
    """
    a, b = at_least_float32(h), _unit(at_least_float32(y))
    alpha = alpha.to(a.dtype)
    half_sin = torch.linalg.vector_norm(a - b, dim=-1, keepdim=True)
    half_cos = torch.linalg.vector_norm(a + b, dim=-1, keepdim=True)
    turns = 2 * torch.atan2(half_sin, half_cos) / math.pi  # θ/π in [0, 1]
    sin_ratio = torch.sinc(turns).clamp_min(1e-4)  # sin θ / θ
    weight_a = (1 - alpha) * torch.sinc((1 - alpha) * turns) / sin_ratio
    weight_b = alpha * torch.sinc(alpha * turns) / sin_ratio
    moved = weight_a * a + weight_b * b
    lost = torch.linalg.vector_norm(moved, dim=-1, keepdim=True) < NORM_EPS
    return _unit(torch.where(lost, a, moved)).to(h.dtype)


def residual_riemannian(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(h − α (h (hᵀb) − b)), b = Norm(y): the step in the tangent space at h (appendix).

    h, y: (B, T, D), alpha: (D,) -> (B, T, D)
    """
    a, b = at_least_float32(h), _unit(at_least_float32(y))
    gradient = a * (a * b).sum(-1, keepdim=True) - b
    return _unit(a - alpha.to(a.dtype) * gradient).to(h.dtype)


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean x²) · gain: GPT's norm.  x: (..., D), gain: (D,) -> (..., D)"""
    wide = at_least_float32(x)
    return F.rms_norm(wide, wide.shape[-1:], gain.to(wide.dtype), RMS_NORM_EPS).to(x.dtype)


def _turn(x: Tensor, table: Tensor) -> Tensor:
    cos, sin = table.to(x.dtype).unsqueeze(-2)  # (T, 1, K/2) each
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+K/2}) of position t by its angle of `rope_table`.

    x: (B, T, H, K), table: (2, T, K/2) -> (B, T, H, K)
    """
    return _turn(at_least_float32(x), table).to(x.dtype)


def qk_on_sphere(
    q: Tensor, k: Tensor, table: Tensor, s_qk: Tensor, qk_norm: bool
) -> tuple[Tensor, Tensor]:
    """Norm(RoPE(q)) · s_qk and Norm(RoPE(k)) · s_qk, per head; Norm only where `qk_norm`.

    The H/G query heads that share a key head share its factors.

    q: (B, T, H, K), k: (B, T, G, K), table: (2, T, K/2), s_qk: (G·K,) -> q, k
    """
    heads, kv_heads = q.shape[-2], k.shape[-2]
    factors = s_qk.view(kv_heads, -1)  # (G, K)

    def prepare(x: Tensor, factors: Tensor) -> Tensor:
        turned = _turn(at_least_float32(x), table)
        unit = _unit(turned) if qk_norm else turned
        return (unit * factors.to(unit.dtype)).to(x.dtype)

    return prepare(q, factors.repeat_interleave(heads // kv_heads, dim=0)), prepare(k, factors)


def swiglu(u: Tensor, nu: Tensor, s_u: Tensor | None = None, s_nu: Tensor | None = None) -> Tensor:
    """(u · s_u) · SiLU(ν · s_ν); nGPT passes s_ν already multiplied by sqrt(d_model).

    u, nu: (B, T, F), s_u, s_nu: (F,) -> (B, T, F)
    """
    wide_u, wide_nu = at_least_float32(u), at_least_float32(nu)
    if s_u is not None and s_nu is not None:
        wide_u, wide_nu = wide_u * s_u.to(wide_u.dtype), wide_nu * s_nu.to(wide_nu.dtype)
    return (wide_u * F.silu(wide_nu)).to(u.dtype)


def linear_cross_entropy(
    h: Tensor,
    E_output: Tensor,
    s_z: Tensor | None,
    targets: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """Cross-entropy of the logits z = (E_output h) · s_z against targets.

    h: (B, T, D), E_output: (V, D), s_z: (V,), targets: (B, T) -> scalar: the sum over the targets
    that are not `ignore_index`, or their mean (0 when there are none).
    """
    logits = at_least_float32(F.linear(h, E_output))
    if s_z is not None:
        logits = logits * s_z.to(logits.dtype)
    total = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=ignore_index, reduction="sum"
    )
    if reduction == "sum":
        return total
    return total / (targets != ignore_index).sum().clamp_min(1)
