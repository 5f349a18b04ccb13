"""The unit hypersphere: which parameters live on it, and how they are put back.

Every matrix of an nGPT is a list of unit vectors, stored as (n_vectors, d_model), so normalizing
always means dividing by the length over the last dimension. One rule tells parameters apart:
**two-dimensional parameters are matrices of vectors, one-dimensional ones are factors.**

The module that owns a matrix on the sphere names it in its attribute `unit_vectors`. A mark on the
tensor itself would be lost when FSDP2, tensor parallelism, `deepcopy` or
`load_state_dict(assign=True)` put another tensor in its place; module and name survive, and are
found inside any wrapper.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from spherelm.errors import UserError
from spherelm.ops.reference import at_least_float32, normalize


def matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The matrices of vectors of a model, by name: its two-dimensional parameters."""
    return ((name, p) for name, p in model.named_parameters() if p.ndim == 2)


def as_read(matrix: Tensor, dtype: torch.dtype, normalized: bool = False) -> Tensor:
    """A matrix, or some of its rows, for a product with a stream of `dtype`.

    One stored in a narrower dtype (`train.weight_storage`) is first widened, which is exact, and
    its gradient is rounded to the stored dtype; `normalized` also divides each row by its length.
    """
    if matrix.dtype.itemsize < dtype.itemsize:
        matrix = matrix.to(dtype)
    return normalize(matrix) if normalized else matrix


MARK = "unit_vectors"
"""Attribute of a module or its class: a dict from the name of each parameter made of unit vectors
to the dimension along which they lie."""
OUR_MARK = "_unit_vectors"
"""The same, set by our own parts; a user's `unit_vectors` on one of them adds to it. Empty if the
matrices are known not to be made of unit vectors, as in a GPT."""


class UnitMatrix(NamedTuple):
    """A parameter made of unit vectors."""

    name: str
    parameter: nn.Parameter
    dim: int
    """The dimension along which its vectors lie: the last, except in some of the exported model's
    matrices."""

    @torch.no_grad()
    def retract_(self) -> None:
        """Put every vector on the sphere, in place."""
        local = local_rows(self.parameter)
        if splits_vectors(self.parameter, self.dim):  # no process holds a whole vector
            whole = _as_rows(normalize(_as_rows(self.parameter.full_tensor(), self.dim)), self.dim)
            mesh, placements = self.parameter.device_mesh, self.parameter.placements
            local.copy_(distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local())
        else:
            rows = _as_rows(local, self.dim)
            rows.copy_(normalize(rows))


def mark_matrices(model: nn.Module, on_sphere: bool) -> None:
    """Mark all matrices of a model of ours: as lists of unit vectors, or as free ones."""
    for module in model.modules():
        names = [n for n, p in module.named_parameters(recurse=False) if p.ndim == 2]
        if names:
            setattr(module, OUR_MARK, dict.fromkeys(names, -1) if on_sphere else {})


def unit_matrices(model: nn.Module) -> list[UnitMatrix]:
    """The matrices of unit vectors in a model, however it is wrapped; none in a spherelm GPT.

    One that a quantizer has replaced by whole numbers is left out: it is not trained, and its
    numbers are no vectors.

    A model without any mark is not made with spherelm and is refused: doing nothing would silently
    leave it unnormalized.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    found: dict[int, UnitMatrix] = {}
    marked = False
    for path, module in model.named_modules():
        mark = _mark_of(module)
        marked |= mark is not None
        for name, dim in (mark or {}).items():
            full_name = f"{path}.{name}".removeprefix(".")
            matrix = UnitMatrix(full_name, _marked_parameter(module, name, full_name), dim)
            if matrix.parameter.is_floating_point():
                found.setdefault(id(matrix.parameter), matrix)  # tied: once
    if not marked:
        raise UserError(
            f"{type(model).__name__} holds no matrices of spherelm's: give a spherelm.Transformer, "
            "an exported nGPT that is not folded, or a model made with our parts, wrapped or not"
        )
    return list(found.values())


def _mark_of(module: nn.Module) -> dict[str, int] | None:
    """The marks of a module, its classes and our own, merged; None if there are none.

    Merged, so that marking one more matrix of our parts leaves the marks of the others.
    """
    # Not getattr: a wrapper such as torch.compile's would show its inner module's mark.
    kinds = reversed(type(module).__mro__) if hasattr(type(module), MARK) else ()
    marks = [names[MARK] for names in (*map(vars, kinds), vars(module)) if MARK in names]
    for mark in marks:
        if not isinstance(mark, dict) or not all(dim in (-2, -1, 0, 1) for dim in mark.values()):
            raise UserError(
                f"{MARK} of {type(module).__name__} must give the dimension of the vectors for "
                f'each name of a matrix, such as {{"W": -1}}, not {mark!r}'
            )
    if OUR_MARK in vars(module):
        marks.append(vars(module)[OUR_MARK])
    return functools.reduce(operator.or_, marks) if marks else None


def _marked_parameter(module: nn.Module, name: str, full_name: str) -> nn.Parameter:
    parameter = module._parameters.get(name)
    if parameter is None:  # a submodule's, such as a Linear's
        with contextlib.suppress(AttributeError):
            parameter = module.get_parameter(name)
    if parameter is not None and parameter.ndim == 2:
        return parameter
    raise UserError(
        f"{full_name} is no longer a matrix, or never was one, so its vectors cannot be "
        f"normalized; {MARK} names two-dimensional parameters, and a wrapper that flattens them "
        "(FSDP1) or parametrizes them does not work with nGPT: use FSDP2's fully_shard"
    )


def row_norms(matrix: Tensor) -> Tensor:
    """The length of every row: (n, D) -> (n, 1)."""
    return torch.linalg.vector_norm(at_least_float32(matrix), dim=-1, keepdim=True)


def local_rows(matrix: Tensor) -> Tensor:
    """The rows that this process holds: all of them, unless the matrix is sharded.

    A shard is made of whole rows (`check_rows_whole`), so anything that concerns one vector, above
    all its norm, needs no communication.
    """
    return matrix.to_local() if isinstance(matrix, DTensor) else matrix


def check_rows_whole(named: Iterable[tuple[str, Tensor]], dim: int = -1) -> None:
    """Refuse matrices whose vectors along `dim` are split over devices: their norms would come out
    wrong."""
    for name, matrix in named:
        if splits_vectors(matrix, dim):
            raise UserError(
                f"{name} is sharded as {matrix.placements}, which splits its "
                f"{'row' if dim % 2 else 'column'} vectors; "
                f"only dimension {0 if dim % 2 else 1} may be sharded"
            )


def splits_vectors(matrix: Tensor, dim: int = -1) -> TypeGuard[DTensor]:
    """Whether no process holds the vectors along `dim` whole."""
    if not isinstance(matrix, DTensor):
        return False
    whole = 0 if dim % 2 else 1  # the dimension that may be sharded
    return any(
        placement.is_partial() or (placement.is_shard() and not placement.is_shard(whole))
        for placement in matrix.placements
    )


def _as_rows(matrix: Tensor, dim: int) -> Tensor:
    """A view of `matrix` in which its vectors along `dim` are the rows."""
    return matrix if dim % 2 else matrix.mT


@torch.no_grad()
def store_matrices_(model: nn.Module, dtype: torch.dtype) -> None:
    """Store the matrices of a model in `dtype`, and put them back on the sphere; factors stay.

    Rounding to bfloat16 changes the length of a row by up to 2^-8; the retraction undoes that where
    it is enough to change any of the row's numbers.
    """
    for _, matrix in matrices(model):
        matrix.data = matrix.data.to(dtype)
    retract_(model)


def retract_(model: nn.Module) -> None:
    """Normalize all matrices of an nGPT along the embedding dimension, in place.

    This is the second point of the paper's summary. Call it after each step of an optimizer that
    does not do it itself. The model may be wrapped (DDP, FSDP2, torch.compile, ...) or be the
    exported one of Hugging Face transformers. A spherelm GPT is left as it is; a model without any
    part of spherelm is refused.
    """
    for matrix in unit_matrices(model):
        matrix.retract_()


@torch.no_grad()
def retract_strays_(model: nn.Module) -> None:
    """Like `retract_`, but rows already on the sphere, up to rounding, keep every bit.

    For loaded weights: those of our checkpoints come back bit by bit, and those from elsewhere are
    normalized. A row that has no direction is an error.
    """
    for name, matrix, dim in unit_matrices(model):
        check_rows_whole([(name, matrix)], dim)
        if matrix.is_meta:
            continue
        rows = _as_rows(local_rows(matrix), dim)
        length = row_norms(rows)
        # A normalized row is off by the rounding of the stored numbers, and by that of computing a
        # length, which grows with d_model: up to 5 eps at 4096, measured on a CPU in float64.
        rounding = torch.finfo(rows.dtype).eps + 16 * torch.finfo(length.dtype).eps
        if not bool((torch.isfinite(length) & (length > 0)).all()):
            raise UserError(f"{name} holds a row that is zero or not finite: it has no direction")
        stray = (length - 1).abs() > rounding
        rows.copy_(torch.where(stray, normalize(rows), rows))


@torch.no_grad()
def largest_norm_deviation(model: nn.Module) -> float:
    """max |‖vector‖ − 1| over all unit vectors that this process holds; 0 where it holds none."""
    rows = [
        _as_rows(matrix.full_tensor() if splits_vectors(matrix, dim) else local_rows(matrix), dim)
        for _, matrix, dim in unit_matrices(model)
    ]
    deviations = [(row_norms(r) - 1).abs().max() for r in rows if r.numel()]
    return float(torch.stack(deviations).max()) if deviations else 0.0
