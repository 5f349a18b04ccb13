"""The paper's runs in its own terms (model, context, budget), whatever size stands in for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spherelm.model.config import Arch

Model = Literal["0.5B", "1B"]
Context = Literal["1k", "4k", "8k"]
Budget = Literal["25k", "50k", "100k", "200k"]

MODELS: tuple[Model, ...] = ("0.5B", "1B")
CONTEXTS: tuple[Context, ...] = ("1k", "4k", "8k")
BUDGETS: tuple[Budget, ...] = ("25k", "50k", "100k", "200k")
"""In iterations. The paper's text names only 100k (its insides, its ablations) and 200k (Figure 1);
the two halvings are ours."""

BASELINE = "baseline"
FAST_ALPHA = "fast-alpha"
"""The stars in the paper's panel for 1B and 8k: alpha stored at 1/sqrt(d_model) instead of 0.1."""


@dataclass(frozen=True)
class Point:
    """One training run."""

    arch: Arch
    model: Model = "0.5B"
    context: Context = "1k"
    budget: Budget = "100k"
    rate: float = 1.0
    """A multiple of the size's learning rate for this model."""
    variant: str = BASELINE
    """A row of the paper's ablations, or FAST_ALPHA."""
