"""From logits to the next token: pure functions of tensors that never wait for the device.

Shapes: B batch, V vocabulary. A forbidden token has the logit -inf. `choose` applies its steps in
the order of Hugging Face's `generate`, so that the same settings mean the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spherelm.generation.settings import Sampling as Sampling
from spherelm.ops.reference import argmax

COLDEST = 1e-30
"""Temperatures below this count as 0: dividing logits by less may overflow float32 to NaN."""


def penalize_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that occurred less likely.  logits: (B, V), seen: (B, V) bool -> (B, V)"""
    penalized = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, penalized, logits)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits of each row, and any equal to the k-th; forbid the rest."""
    k = min(k, logits.shape[-1])
    smallest = logits.topk(k).values[..., -1:]
    return logits.masked_fill(logits < smallest, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of most likely tokens with a total probability of at least p."""
    ordered, order = logits.sort(descending=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities  # of the more likely tokens
    forbidden = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= p)
    return logits.masked_fill(forbidden, -torch.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Forbid tokens less than p times as likely as the most likely one."""
    probabilities = logits.softmax(-1)
    return logits.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), -torch.inf)


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one token per row from softmax(logits): (B, V) -> (B,)

    Of V exponential clocks with rates p_i, clock i rings first with probability p_i. Unlike
    torch.multinomial, this does not make the host wait for the probabilities.
    """
    clocks = torch.empty_like(logits).exponential_(generator=generator)
    return (logits.softmax(-1) / clocks).argmax(-1)


def choose(
    logits: Tensor,
    sampling: Sampling,
    seen: Tensor | None,
    generator: torch.Generator,
    argmax: Callable[[Tensor], Tensor] = argmax,
) -> Tensor:
    """The next token of each row: (B, V) -> (B,)"""
    if sampling.repetition_penalty != 1.0 and seen is not None:
        logits = penalize_repetition(logits, seen, sampling.repetition_penalty)
    if sampling.temperature < COLDEST:
        return argmax(logits)
    logits = logits / sampling.temperature
    if sampling.top_k is not None:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p is not None:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p is not None:
        logits = keep_min_p(logits, sampling.min_p)
    return draw(logits, generator)
