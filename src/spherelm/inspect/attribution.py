"""Exact attribution: how much each half-block contributed to the logit of the token that came next.

Every step of nGPT is h' = (p ⊙ h + q ⊙ b) / n, with b the output of the half-block, n the length
that Norm divides by, and p, q computed from α:

    LERP          p = 1 − α                      q = α
    SLERP         p = sin((1−α)θ)/sin θ          q = sin(αθ)/sin θ
    Riemannian    p = 1 − α (hᵀb)                q = α

So the last state is a sum: each b times q/n of its own step and p/n of all later steps, plus the
embedding times p/n of all steps. A logit is linear in the last state, so it is a sum of the same
terms. Each output is credited in full to its own half-block, although earlier ones influenced it.

GPT's last state is the plain sum of its outputs; the divisor of its last RMSNorm is treated as a
constant. Shapes: T tokens, D d_model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.distribution import wide
from spherelm.inspect.walk import HalfBlock, Walk, read_out
from spherelm.model.transformer import Transformer
from spherelm.ops.reference import RMS_NORM_EPS, slerp_weights

Weights = tuple[Tensor, Tensor]
"""p/n and q/n of a step: (T, D) each"""


@dataclass(frozen=True)
class Attribution:
    """The logit of each token's target, divided into contributions."""

    contributions: tuple[tuple[float, ...], ...]
    """For the embedding and then each half-block, one number per token."""
    logits: tuple[float, ...]
    """The logits that the model itself computes, equal to the sums except for rounding."""
    largest_error: float
    """The largest difference between a sum and its logit."""
    half_lives: tuple[float | None, ...]
    """For the embedding and then each half-block, the number of half-blocks until only half of its
    share of the hidden state is left (median over tokens); None if more is left at the end."""


@torch.no_grad()
def attribute(model: Transformer, way: Walk, targets: Tensor) -> Attribution | None:
    """The attribution of a walk; None unless the update rule is one of the three above."""
    targets = targets.to(way.tokens.device)
    mixed = [weights(step, model.config.update) for step in way.steps]
    known = [both for both in mixed if both is not None]
    if len(known) < len(mixed):
        return None
    shares = _shares(way, known)
    direction = wide(model.scaled_output_embedding(model.dtype)[targets])  # (T, D)
    if model.final_norm is not None:
        h = wide(way.last)
        inverse = (h.square().mean(-1, keepdim=True) + RMS_NORM_EPS).rsqrt()
        direction = direction * wide(model.final_norm.gain) * inverse.to(direction.device)
    parts = torch.stack([(share * direction).sum(-1) for share in shares])
    logits = wide(read_out(model, way.last).gather(-1, targets[:, None])[:, 0])
    return Attribution(
        contributions=tuple(tuple(row) for row in parts.tolist()),
        logits=tuple(logits.tolist()),
        largest_error=float((parts.sum(0) - logits).abs().max()),
        half_lives=tuple(half_life(way, i, known) for i in range(len(parts))),
    )


def weights(step: HalfBlock, update: str) -> Weights | None:
    """p/n and q/n of a step, the factors on the state before it and on its output: (T, D) each.

    None for an unknown update rule.
    """
    if step.alpha is None:  # GPT adds
        return torch.ones_like(wide(step.h)), torch.ones_like(wide(step.h))
    h, b, alpha = wide(step.h), wide(step.output), wide(step.alpha).expand(step.h.shape)
    if update == "lerp":
        p, q = 1 - alpha, alpha
    elif update == "riemannian":
        p, q = 1 - alpha * (h * b).sum(-1, keepdim=True), alpha
    elif update == "slerp":
        p, q = slerp_weights(h, b, alpha)
    else:
        return None
    n = torch.linalg.vector_norm(p * h + q * b, dim=-1, keepdim=True)
    return p / n, q / n


def _shares(way: Walk, mixed: Sequence[Weights]) -> list[Tensor]:
    """The parts whose sum is the last hidden state: the embedding's, and each half-block's."""
    found: list[Tensor] = []
    kept = torch.ones_like(wide(way.embedding))
    for step, (p, q) in zip(reversed(way.steps), reversed(mixed), strict=True):
        found.append(kept * q * wide(step.output))
        kept = kept * p
    return [kept * wide(way.embedding), *reversed(found)]


def half_life(way: Walk, source: int, mixed: Sequence[Weights]) -> float | None:
    """The half-blocks after which a contribution's share of the state is half what it was at first.

    The share is the contribution's length divided by the state's, which in nGPT is always 1.
    `source` is 0 for the embedding, then counts half-blocks; `mixed` has the weights of all steps.
    """
    if source == 0:
        part, state = wide(way.embedding), way.embedding
    else:
        step = way.steps[source - 1]
        part, state = mixed[source - 1][1] * wide(step.output), step.after
    first = _share(part, state)
    before = 1.0
    later = zip(way.steps[source:], mixed[source:], strict=True)
    for count, (step, (p, _)) in enumerate(later, start=1):
        part = part * p
        left = float((_share(part, step.after) / first).quantile(0.5))
        if left <= 0.5:
            return count - 1 + (before - 0.5) / (before - left)
        before = left
    return None


def _share(part: Tensor, state: Tensor) -> Tensor:
    return torch.linalg.vector_norm(part, dim=-1) / torch.linalg.vector_norm(wide(state), dim=-1)
