"""The unit hypersphere: which parameters live on it, and how they are put back.

Every matrix of an nGPT is a list of unit vectors, stored as (n_vectors, d_model), so that to
normalize is always to divide by the length over the last dimension. One rule says which parameters
those are: **two-dimensional parameters are matrices of vectors, one-dimensional ones are factors.**
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from spherelm.errors import UserError
from spherelm.kernels.reference import at_least_float32, normalize


def matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The matrices of vectors of a model, by name: its two-dimensional parameters."""
    return ((name, p) for name, p in model.named_parameters() if p.ndim == 2)


def as_read(matrix: Tensor, dtype: torch.dtype, normalized: bool = False) -> Tensor:
    """A matrix, or some of its rows, as a product with a stream of `dtype` takes it.

    What is stored in a narrower dtype (`train.weight_storage`) is widened first, exactly, and its
    gradient rounded to what is stored; `normalized` also divides each row by its length.
    """
    if matrix.dtype.itemsize < dtype.itemsize:
        matrix = matrix.to(dtype)
    return normalize(matrix) if normalized else matrix


def is_spherical(model: nn.Module) -> bool:
    """Whether the rows of this model's matrices live on the unit sphere."""
    return bool(getattr(model, "spherical", False))


def row_norms(matrix: Tensor) -> Tensor:
    """The length of every row: (n, D) -> (n, 1)."""
    return torch.linalg.vector_norm(at_least_float32(matrix), dim=-1, keepdim=True)


def local_rows(matrix: Tensor) -> Tensor:
    """The rows that this process holds: all of them, unless the matrix is sharded.

    A shard is made of whole rows (`check_rows_whole`), so that whatever concerns one vector,
    its norm above all, needs no communication.
    """
    return matrix.to_local() if isinstance(matrix, DTensor) else matrix


def check_rows_whole(model: nn.Module) -> None:
    """Refuse a model whose vectors are split over devices: their norms would come out wrong."""
    for name, matrix in matrices(model):
        if isinstance(matrix, DTensor):
            for placement in matrix.placements:
                if placement.is_partial() or (placement.is_shard() and not placement.is_shard(0)):
                    raise UserError(
                        f"{name} is sharded as {matrix.placements}, which splits its row vectors; "
                        f"only dimension 0 may be sharded"
                    )


@torch.no_grad()
def store_matrices_(model: nn.Module, dtype: torch.dtype) -> None:
    """Keep the matrices of a model in `dtype`, rounded and back on the sphere; factors stay.

    Rounding to bfloat16 changes the length of a row by up to 2^-8; where it was by enough to matter
    to any of its numbers, the retraction takes that back.
    """
    for _, matrix in matrices(model):
        matrix.data = matrix.data.to(dtype)
    retract_(model)


@torch.no_grad()
def normalize_rows_(matrix: Tensor) -> None:
    """Put every row of a matrix on the sphere, in place."""
    rows = local_rows(matrix)
    rows.copy_(normalize(rows))


def retract_(model: nn.Module) -> None:
    """Normalize all matrices of an nGPT along the embedding dimension, in place (point 2).

    Call it after each step of an optimizer that does not do it itself. Nothing to do for a GPT.
    """
    if is_spherical(model):
        for _, matrix in matrices(model):
            normalize_rows_(matrix)


@torch.no_grad()
def retract_strays_(model: nn.Module) -> None:
    """Like `retract_`, but rows already on the sphere, to rounding, keep every bit.

    For weights that were loaded: what a checkpoint of ours holds comes back exactly as it was, and
    what came from elsewhere is normalized. A row without direction is an error.
    """
    if not is_spherical(model):
        return
    for name, matrix in matrices(model):
        if matrix.is_meta:
            continue
        rows = local_rows(matrix)
        length = row_norms(rows)
        # A row of ours is off by the rounding of what is stored and by that of computing a length,
        # which grows with d_model: up to 5 eps at 4096, measured on a CPU in float64.
        rounding = torch.finfo(rows.dtype).eps + 16 * torch.finfo(length.dtype).eps
        if not bool((torch.isfinite(length) & (length > 0)).all()):
            raise UserError(f"{name} holds a row that is zero or not finite: it has no direction")
        stray = (length - 1).abs() > rounding
        rows.copy_(torch.where(stray, normalize(rows), rows))


@torch.no_grad()
def largest_norm_deviation(model: nn.Module) -> float:
    """max |‖row‖ − 1| over all rows of all matrices that this process holds."""
    rows = [local_rows(matrix) for _, matrix in matrices(model)]
    return float(torch.stack([(row_norms(r) - 1).abs().max() for r in rows if r.numel()]).max())
