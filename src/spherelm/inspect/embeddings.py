"""Embeddings: their norms, the eigenvalues of their covariance, their pairwise dot products.

The paper's figure on embeddings. Shapes: V vocabulary, D d_model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.distribution import Distribution, distribution_of, wide

EXACT_ROWS = 4096
"""For vocabularies up to this size all pairs are counted."""
SAMPLED_ROWS = 2048
"""For larger ones, all pairs of this many sampled tokens: two million pairs."""
SEED = 20241001
"""Seed of the sample of tokens."""
_CHUNK = 8192


@dataclass(frozen=True)
class Embeddings:
    """One embedding matrix."""

    name: str
    tokens: int
    norms: Distribution
    eigenvalues_over_median: tuple[float, ...]
    """Of the covariance over tokens, the largest first."""
    condition: float
    """The largest eigenvalue over the smallest."""
    dot_products: Distribution
    """Between different tokens."""
    pairs: int
    """How many dot products were counted."""
    seed: int | None
    """Of the sample of tokens; None if all pairs were counted."""


def look_at_embeddings(name: str, E: Tensor) -> Embeddings:
    """The numbers of an embedding matrix.  E: (V, D)"""
    rows, seed = E, None
    if E.shape[0] > EXACT_ROWS:
        seed = SEED
        drawn = torch.randperm(E.shape[0], generator=torch.Generator().manual_seed(seed))
        rows = E[drawn[:SAMPLED_ROWS].to(E.device)]
    products = pairwise_dot_products(rows)
    values = covariance_eigenvalues(E)
    return Embeddings(
        name=name,
        tokens=E.shape[0],
        norms=distribution_of(torch.linalg.vector_norm(E.detach().float(), dim=-1)),
        eigenvalues_over_median=tuple((values / values.median()).tolist()),
        condition=float(values[0] / values[-1]),
        dot_products=distribution_of(products),
        pairs=products.numel(),
        seed=seed,
    )


def covariance_eigenvalues(E: Tensor) -> Tensor:
    """Eigenvalues of the rows' covariance, the largest first, at least the smallest that float64
    can distinguish from 0.  (V, D) -> (D,)"""
    mean = sum(wide(part).sum(0) for part in E.split(_CHUNK)) / E.shape[0]
    covariance = sum((c := wide(part) - mean).T @ c for part in E.split(_CHUNK)) / E.shape[0]
    assert isinstance(covariance, Tensor)
    values = torch.linalg.eigvalsh(covariance).flip(0)
    return values.clamp_min(float(values[0]) * 1e-15 or 1e-300)


def pairwise_dot_products(rows: Tensor) -> Tensor:
    """The dot product of each row with each other one, each pair once.  (N, D) -> (N(N−1)/2,)"""
    rows = rows.detach().float()
    products = rows @ rows.T
    upper = torch.ones_like(products, dtype=torch.bool).triu_(1)
    return products[upper]
