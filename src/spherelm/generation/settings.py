"""Settings of sampling; without torch, so that the command line shows its help at once."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.validate import NonNegative, Seed, Share, check_fields


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    temperature: NonNegative = 1.0
    """Logits are divided by this; 0 always takes the most likely token."""
    top_k: int | None = None
    """Choose among the k most likely tokens only."""
    top_p: Share | None = None
    """Choose among the most likely tokens whose probabilities sum to at least this."""
    min_p: Share | None = None
    """Choose among tokens at least this times as likely as the most likely one."""
    repetition_penalty: float = 1.0
    """Above 1, tokens that have occurred become less likely: their positive logits are divided by
    this, negative ones multiplied."""
    seed: Seed = 0
    """Seed of the choice."""

    def __post_init__(self) -> None:
        check_fields(self)


PLAIN = Sampling()
"""Sampling from the model's own probabilities."""
