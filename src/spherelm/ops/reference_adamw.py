"""The AdamW step in plain PyTorch: the specification of the kernel, and in its absence the step for
weights stored in less than float32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from spherelm.ops.reference import at_least_float32, normalize


def adamw_(
    entries: Iterable[Sequence[Tensor]],
    *,
    on_sphere: bool,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    step: int,
    factor: Tensor | None = None,
) -> None:
    """One step of AdamW, in place, for entries of (p, gradient, m, v), computed in float32.

    g ← factor · g      m ← β₁ m + (1−β₁) g        v ← β₂ v + (1−β₂) g²
    p ← p (1 − lr·wd) − lr/(1−β₁ᵗ) · m / (sqrt(v/(1−β₂ᵗ)) + ε)        p ← Norm(p) on the sphere

    Results stored in bfloat16 are rounded once, at the end, to nearest.
    """
    for p, grad, exp_avg, exp_avg_sq in entries:
        g = at_least_float32(grad) if factor is None else at_least_float32(grad) * factor
        m = torch.lerp(at_least_float32(exp_avg), g, 1 - betas[0])
        v = (at_least_float32(exp_avg_sq) * betas[1]).addcmul_(g, g, value=1 - betas[1])
        divisor = (v / (1 - betas[1] ** step)).sqrt_().add_(eps)
        moved = at_least_float32(p) * (1 - lr * weight_decay)
        moved.addcdiv_(m, divisor, value=-lr / (1 - betas[0] ** step))
        p.copy_(normalize(moved) if on_sphere else moved)
        exp_avg.copy_(m)
        exp_avg_sq.copy_(v)
