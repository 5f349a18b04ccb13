"""Condition numbers of a network's matrices by layer, and one layer's matrices in full.

The paper's figures on condition numbers: those of attention are the median over heads; GPT's are
also measured after its rows were normalized, to see whether lengths alone made them large.
Shapes: D d_model, K head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.distribution import Distribution, distribution_of, wide
from spherelm.model.transformer import Transformer
from spherelm.ops.reference import at_least_float32

LARGEST = 1e7
"""Condition numbers above this are given as this: the smallest singular value is then rounding."""
LARGE = 2**18
"""Numbers from which a matrix is worth the quicker way: those of the paper's networks."""
QUICK = 100
"""Condition numbers up to which float32 is enough."""
ATTENTION = ("W_q", "W_k", "W_v", "W_o")
MLP = ("W_u", "W_nu", "W_o_mlp")


@dataclass(frozen=True)
class Conditions:
    """The condition numbers of one kind of matrix, a number a layer."""

    matrix: str
    by_layer: tuple[float, ...]
    rows_normalized: tuple[float, ...] | None
    """The same with every row divided by its length; None where rows are unit vectors anyway."""


@dataclass(frozen=True)
class FullMatrix:
    """One matrix of one layer, all heads together."""

    matrix: str
    norms: Distribution
    """Of its rows: the vectors in the space of embeddings."""
    singular_values: tuple[float, ...]
    """The largest first."""


def singular_values(W: Tensor, quick: bool = True) -> Tensor:
    """Singular values, the largest first: (..., n, m) -> (..., min(n, m))

    As square roots of the eigenvalues of the smaller Gram matrix in float64, which is several
    times faster than a decomposition of the matrix, and exact to 1e-8 of the largest. A large
    matrix is first looked at in float32, which takes half the time; that is enough where no value
    is below a hundredth of the largest, which it finds to 2e-4 (measured on 4096 x 1024). Where a
    smaller one is expected, that look can be left out (not `quick`).
    """
    if quick and W.numel() >= LARGE and W.dtype == torch.float32:
        values = _roots_of_gram(W.detach())
        if bool((values[..., -1] > values[..., 0] / QUICK).all()):
            return wide(values)
    return _roots_of_gram(wide(W))


def _roots_of_gram(W: Tensor) -> Tensor:
    gram = W @ W.mT if W.shape[-2] <= W.shape[-1] else W.mT @ W
    return torch.linalg.eigvalsh(gram).flip(-1).clamp_min(0).sqrt()


def condition_numbers(W: Tensor, quick: bool = True) -> Tensor:
    """The largest singular value over the smallest, at most LARGEST: (..., n, m) -> (...)"""
    values = singular_values(W, quick)
    return (values[..., 0] / values[..., -1].clamp_min(1e-300)).clamp_max(LARGEST)


def look_at_conditions(
    model: Transformer, report: Callable[[int], None] = lambda layer: None
) -> list[Conditions]:
    """The condition numbers of all matrices of all blocks; `report` hears of each layer done."""
    found: dict[str, list[float]] = {name: [] for name in (*ATTENTION, *MLP)}
    normalized: dict[str, list[float]] = {name: [] for name in (*ATTENTION, *MLP)}
    for layer in range(model.config.n_layers):
        for name, W in matrices_of(model, layer):
            _add_median_over_heads(found[name], name, W, model.config.d_k)
            if not model.spherical:
                unit = torch.nn.functional.normalize(at_least_float32(W), dim=-1)
                _add_median_over_heads(normalized[name], name, unit, model.config.d_k)
        report(layer + 1)
    return [
        Conditions(name, tuple(values), tuple(normalized[name]) or None)
        for name, values in found.items()
    ]


def look_at_layer(model: Transformer, layer: int) -> list[FullMatrix]:
    """Norms and singular values of the full matrices of attention of a layer, counted from 0."""
    return [
        FullMatrix(
            name,
            distribution_of(torch.linalg.vector_norm(wide(W), dim=-1)),
            tuple(singular_values(W).tolist()),
        )
        for name, W in matrices_of(model, layer)
        if name in ATTENTION
    ]


def matrices_of(model: Transformer, layer: int) -> Iterator[tuple[str, Tensor]]:
    """The seven matrices of a block by name, without the factors that are applied to them."""
    block = model.layers[layer]
    for part, names in ((block.attention, ATTENTION), (block.mlp, MLP)):
        for name in names:
            yield name, getattr(part, name).detach()


def _add_median_over_heads(found: list[float], name: str, W: Tensor, d_k: int) -> None:
    """Add the condition number of a matrix of the MLP, the median of those of heads in attention.

    Layers are much alike: what the one before was like says whether a quick look would do.
    """
    heads = W.unflatten(0, (-1, d_k)) if name in ATTENTION else W[None]
    quick = not found or found[-1] < QUICK
    found.append(float(condition_numbers(heads, quick).quantile(0.5)))
