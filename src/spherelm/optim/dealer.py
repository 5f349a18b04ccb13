"""Whole matrices out of rows that lie on several processes, and their rows back.

Sharded by rows, a matrix is whole on no process; what orthogonalizes it needs all of it. So the
matrices are dealt out: every process is sent the rows of a few, works on those, and sends back what
it has made of the rows. In all that is twice the size of the matrices, and none is worked on twice,
but for the groups of `parallel.replicate`, of which each does the whole work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor


class Dealer:
    """Deals out the matrices of a model over the processes that share the rows of each."""

    def __init__(self, matrix: DTensor) -> None:
        """All processes make theirs at the same time, of the same matrix; others of the model are
        cut in the same way."""
        self._group = _sharing(matrix)
        self.ways = dist.get_world_size(self._group)
        self._rank = dist.get_rank(self._group)
        self._counts: dict[torch.Size, list[int]] = {}

    def apply(
        self, function: Callable[[Tensor], Tensor], rows: Tensor, shape: torch.Size, before: int
    ) -> Tensor:
        """What `function` makes of n matrices of one `shape`, (R, C), of which each process gives
        the rows that it holds: of the results, the same rows.  (n, r, C) -> (n, r, C)

        `before` is how many matrices were dealt out before them, in this step: who is next.
        `function` gets some of them whole, (m, R, C) -> (m, R, C). Their rows are in the order of
        the processes, which tensor parallelism makes another than the matrix's own, so that must
        be all the same to it.
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
        """How many of them each process gets, the first ones the first; who gets one more than
        others goes round."""
        each, over = divmod(matrices, self.ways)
        return [each + ((rank - before) % self.ways < over) for rank in range(self.ways)]

    def _rows_of_each(self, shape: torch.Size, rows: Tensor) -> list[int]:
        """How many rows each process holds of a matrix of that shape; asked for once."""
        if shape not in self._counts:
            counts = rows.new_zeros(self.ways, dtype=torch.long)
            counts[self._rank] = rows.shape[1]
            dist.all_reduce(counts, group=self._group)
            self._counts[shape] = counts.tolist()
        return self._counts[shape]

    def _exchange(self, sent: Tensor, leaving: list[int], coming: list[int]) -> Tensor:
        """Send so many rows to each process, and get so many of each."""
        got = sent.new_empty(sum(coming), sent.shape[1])
        dist.all_to_all_single(got, sent, coming, leaving, group=self._group)
        return got


def dealer_of(matrices: Sequence[Tensor]) -> Dealer | None:
    """What deals out these matrices; None where every process holds them whole."""
    shared = (m for m in matrices if isinstance(m, DTensor) and _cut_along(m))
    first = next(shared, None)
    return None if first is None else Dealer(first)


def _cut_along(matrix: DTensor) -> list[int]:
    """The dimensions of the mesh over which rows are divided."""
    return [i for i, placement in enumerate(matrix.placements) if not placement.is_replicate()]


def _sharing(matrix: DTensor) -> dist.ProcessGroup:
    """The processes that together hold a matrix once."""
    mesh, cut = matrix.device_mesh, _cut_along(matrix)
    if len(cut) == 1:
        return mesh.get_group(cut[0])
    assert mesh.mesh_dim_names is not None
    return mesh[tuple(mesh.mesh_dim_names[dim] for dim in cut)]._flatten().get_group()
