"""Angular step cap (Training nGPT, arXiv 2608.01284): no vector turns too far in one step.

A step turns each row of the blocks' matrices, but not of the embeddings, by at most θ_max(t). The
source's θ_max(t) is not known to us; ours is proportional to the learning rate, with `angle_cap`
radians at its peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from spherelm.model.sphere import local_rows, matrices
from spherelm.model.transformer import Transformer
from spherelm.ops.reference import normalize


@torch.no_grad()
def cap_rows_(rows: Tensor, before: Tensor, most: float) -> None:
    """Turn rows more than `most` radians from the unit rows `before` back to that angle.

    They turn in the plane of the two: before · cos θ + tangent · sin θ. Rows within the angle stay
    as they are.  (n, D)
    """
    most = min(most, math.pi)  # no two directions are further apart
    after = normalize(rows)
    # The chord, because the cosine cannot tell small angles apart.
    chord = torch.linalg.vector_norm(after - before, dim=-1, keepdim=True)
    along = (after * before).sum(-1, keepdim=True)
    tangent = normalize(after - along * before)
    capped = before * math.cos(most) + tangent * math.sin(most)
    rows.copy_(torch.where(chord > 2 * math.sin(most / 2), capped, rows))


def cap_angles(
    optimizers: Iterable[torch.optim.Optimizer], model: Transformer, angle: float
) -> None:
    """Cap the steps of the blocks' matrices at `angle` · (rate now / rate at this call)."""
    capped = {id(matrix) for _, matrix in matrices(model.blocks)}
    for optimizer in optimizers:
        _attach(optimizer, capped, angle)


def _attach(optimizer: torch.optim.Optimizer, capped: set[int], angle: float) -> None:
    def held() -> list[tuple[Tensor, float]]:
        """The capped matrices with their current rates; looked up each time, because
        load_state_dict replaces the groups."""
        return [
            (p, float(group["lr"]))
            for group in optimizer.param_groups
            for p in group["params"]
            if id(p) in capped
        ]

    peaks = {id(p): rate for p, rate in held()}
    before: list[Tensor] = []

    def remember(*_arguments: Any) -> None:
        before[:] = [local_rows(p).detach().clone() for p, _ in held()]

    def cap(*_arguments: Any) -> None:
        for (p, rate), old in zip(held(), before, strict=True):
            cap_rows_(local_rows(p), old, angle * rate / peaks[id(p)])
        before.clear()

    if peaks:
        optimizer.register_step_pre_hook(remember)
        optimizer.register_step_post_hook(cap)
