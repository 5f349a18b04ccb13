"""Deals matrices that are sharded by rows out to processes, which each process some of them whole.

Orthogonalizing a matrix needs all of its rows, which no process has when they are sharded. So every
process is sent the rows of a few matrices, works on those, and sends the resulting rows back. The
total traffic is twice the size of the matrices. No matrix is worked on twice, except that each
group of `parallel.replicate` does all the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor


class Dealer:
    """Deals out the matrices of a model to the processes that share their rows."""

    def __init__(self, matrix: DTensor) -> None:
        """To be called by all processes at the same time, with the same matrix; the model's other
        matrices are sharded in the same way."""
        self._group = _sharing(matrix)
        self.ways = dist.get_world_size(self._group)
        self._rank = dist.get_rank(self._group)
        self._counts: dict[torch.Size, list[int]] = {}

    def apply(
        self, function: Callable[[Tensor], Tensor], rows: Tensor, shape: torch.Size, before: int
    ) -> Tensor:
        """Apply `function` to n matrices of one `shape`, (R, C). Each process gives the rows that
        it holds, and gets the same rows of the results.  (n, r, C) -> (n, r, C)

        `before` is how many matrices were dealt out before these in this step: it says whose turn
        it is. `function` gets some of the matrices whole, (m, R, C) -> (m, R, C). It must not
        depend on the order of the rows: they come in the order of the processes, which under
        tensor parallelism is not the matrix's own.
        """
        counts = self._rows_of_each(shape, rows)
        shares = self._shares(len(rows), before)
        mine = shares[self._rank]
        leaving = [share * counts[self._rank] for share in shares]
        coming = [mine * count for count in counts]

        parts = self._exchange(rows.flatten(0, 1), leaving, coming).split(coming)
        parts = [part.view(mine, n, shape[1]) for part, n in zip(parts, counts, strict=True)]
        whole = torch.cat(parts, dim=1)
        made = function(whole) if mine else whole
        back = torch.cat([part.flatten(0, 1) for part in made.split(counts, dim=1)])
        return self._exchange(back, coming, leaving).view(rows.shape)

    def _shares(self, matrices: int, before: int) -> list[int]:
        """How many matrices each process gets, in order; those that get one more take turns."""
        each, over = divmod(matrices, self.ways)
        return [each + ((rank - before) % self.ways < over) for rank in range(self.ways)]

    def _rows_of_each(self, shape: torch.Size, rows: Tensor) -> list[int]:
        """How many rows each process holds of a matrix of this shape; exchanged once."""
        if shape not in self._counts:
            counts = rows.new_zeros(self.ways, dtype=torch.long)
            counts[self._rank] = rows.shape[1]
            dist.all_reduce(counts, group=self._group)
            self._counts[shape] = counts.tolist()
        return self._counts[shape]

    def _exchange(self, sent: Tensor, leaving: list[int], coming: list[int]) -> Tensor:
        """Send each process its number of `leaving` rows, and get its `coming` ones."""
        got = sent.new_empty(sum(coming), sent.shape[1])
        dist.all_to_all_single(got, sent, coming, leaving, group=self._group)
        return got


def dealer_of(matrices: Sequence[Tensor]) -> Dealer | None:
    """The dealer for these matrices; None if every process holds them whole."""
    shared = (m for m in matrices if isinstance(m, DTensor) and _cut_along(m))
    first = next(shared, None)
    return None if first is None else Dealer(first)


def _cut_along(matrix: DTensor) -> list[int]:
    """The mesh dimensions along which a matrix is sharded."""
    return [i for i, placement in enumerate(matrix.placements) if not placement.is_replicate()]


def _sharing(matrix: DTensor) -> dist.ProcessGroup:
    """The group of processes that together hold one copy of a matrix."""
    mesh, cut = matrix.device_mesh, _cut_along(matrix)
    if len(cut) == 1:
        return mesh.get_group(cut[0])
    assert mesh.mesh_dim_names is not None
    return mesh[tuple(mesh.mesh_dim_names[dim] for dim in cut)]._flatten().get_group()
