"""Exact attribution: which half-block put how much into the logit of the token that came next.

Every step of nGPT is h' = (p ⊙ h + q ⊙ b) / n, with b the output of the half-block, n the length
that Norm divides by, and p, q known from α:

    LERP          p = 1 − α                      q = α
    SLERP         p = sin((1−α)θ)/sin θ          q = sin(αθ)/sin θ
    Riemannian    p = 1 − α (hᵀb)                q = α

So the last state is a sum: each b times q/n of its own step and p/n of all steps behind it, and the
embedding times p/n of all steps. A logit is linear in the last state, hence the same sum. The
outputs themselves are taken as they are: what an earlier block did to them is theirs, not its own.

GPT's last state is the plain sum of its outputs; the number that its last RMSNorm divides by is
taken as it is. Shapes: T tokens, D d_model.
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
    """The logit of each token's target, divided among what made it."""

    contributions: tuple[tuple[float, ...], ...]
    """For the embedding and then each half-block, a number a token."""
    logits: tuple[float, ...]
    """What the model itself computes: the sums, but for rounding."""
    largest_error: float
    """The largest difference between a sum and its logit."""
    half_lives: tuple[float | None, ...]
    """For the embedding and then each half-block, the half-blocks after which half of its share of
    the hidden state is left (median over tokens); None where more is left at the end."""


@torch.no_grad()
def attribute(model: Transformer, way: Walk, targets: Tensor) -> Attribution | None:
    """The attribution of a walk; None for an update rule that is none of the three above."""
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
    """p/n and q/n of a step: what the state before it and its output are multiplied with.

    (T, D) each; None for an update rule that is not known here.
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
    """When a contribution has half of the share of the state that it had when it was made.

    The share is its length over that of the state, which in nGPT is 1 throughout. `source` is 0 for
    the embedding, then the half-blocks; `mixed` has the weights of all steps.
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
