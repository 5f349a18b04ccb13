"""Condition numbers of a network's matrices by layer, and one layer's matrices in full.

As in the paper's figures, those of attention are medians over heads, and GPT's are also measured
after normalizing its rows, to see whether row lengths alone make them large.
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
"""Condition numbers are cut off here: beyond it the smallest singular value is only rounding."""
LARGE = 2**18
"""Matrices with at least this many entries, such as the paper's, are first tried in float32."""
QUICK = 100
"""Condition numbers up to this are exact enough in float32."""
ATTENTION = ("W_q", "W_k", "W_v", "W_o")
MLP = ("W_u", "W_nu", "W_o_mlp")


@dataclass(frozen=True)
class Conditions:
    """The condition numbers of one kind of matrix, one per layer."""

    matrix: str
    by_layer: tuple[float, ...]
    rows_normalized: tuple[float, ...] | None
    """The same after dividing every row by its length; None if rows are unit vectors anyway."""


@dataclass(frozen=True)
class FullMatrix:
    """One matrix of one layer, all heads together."""

    matrix: str
    norms: Distribution
    """Lengths of its rows, which are vectors in the embedding space."""
    singular_values: tuple[float, ...]
    """The largest first."""


def singular_values(W: Tensor, quick: bool = True) -> Tensor:
    """Singular values, the largest first: (..., n, m) -> (..., min(n, m))

    Computed as square roots of the eigenvalues of the smaller Gram matrix in float64: several times
    faster than an SVD, and exact to 1e-8 of the largest value. A large matrix is first tried in
    float32, which takes half the time and is enough if no value is below a hundredth of the largest
    (then the error is 2e-4, measured on 4096 x 1024). If a smaller value is expected, `quick=False`
    skips that attempt.
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
    """The condition numbers of all matrices of all blocks; `report` is called after each layer."""
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
    """Norms and singular values of a layer's full attention matrices; `layer` counts from 0."""
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
    """The seven matrices of a block by name, without their scaling factors."""
    block = model.layers[layer]
    for part, names in ((block.attention, ATTENTION), (block.mlp, MLP)):
        for name in names:
            yield name, getattr(part, name).detach()


def _add_median_over_heads(found: list[float], name: str, W: Tensor, d_k: int) -> None:
    """Append the condition number of an MLP matrix, or the median over heads for attention.

    Layers are much alike, so the previous layer tells whether float32 is likely to be enough.
    """
    heads = W.unflatten(0, (-1, d_k)) if name in ATTENTION else W[None]
    quick = not found or found[-1] < QUICK
    found.append(float(condition_numbers(heads, quick).quantile(0.5)))
