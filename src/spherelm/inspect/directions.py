"""Neurons as directions: the tokens nearest to what each reads (W_u) and writes (W_oMLP).

A row of W_u is compared with the hidden state, which begins as a row of E_input; a row of W_oMLP is
added to it, and the hidden state is read out by E_output. Shapes: F d_mlp, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.model.transformer import Transformer

NEAREST = 5
_CHUNK = 512


@dataclass(frozen=True)
class Directions:
    """Every row of one matrix with its nearest tokens."""

    matrix: str
    embedding: str
    """Whose rows it was compared with."""
    tokens: tuple[tuple[int, ...], ...]
    cosines: tuple[tuple[float, ...], ...]

    def strongest(self, count: int) -> list[int]:
        """The rows that are nearest to any token."""
        order = sorted(range(len(self.cosines)), key=lambda row: -self.cosines[row][0])
        return order[:count]


def look_at_directions(
    model: Transformer, layer: int, report: Callable[[int], None] = lambda rows: None
) -> list[Directions]:
    """The rows of W_u and W_oMLP of a layer, counted from 0; `report` hears of rows done."""
    mlp = model.layers[layer].mlp
    E_output = model.E_input if model.E_output is None else model.E_output
    return [
        nearest_tokens("W_u", mlp.W_u, "E_input", model.E_input, report),
        nearest_tokens("W_o_mlp", mlp.W_o_mlp, "E_output", E_output, report),
    ]


@torch.no_grad()
def nearest_tokens(
    matrix: str,
    rows: Tensor,
    embedding: str,
    E: Tensor,
    report: Callable[[int], None] = lambda rows: None,
) -> Directions:
    """The tokens whose embeddings have the largest cosines with each row.  (F, D), (V, D)"""
    unit = torch.nn.functional.normalize(E.float(), dim=-1)
    tokens: list[tuple[int, ...]] = []
    cosines: list[tuple[float, ...]] = []
    for part in rows.split(_CHUNK):
        found = (torch.nn.functional.normalize(part.float(), dim=-1) @ unit.T).topk(
            min(NEAREST, E.shape[0]), dim=-1
        )
        tokens += map(tuple, found.indices.tolist())
        cosines += map(tuple, found.values.tolist())
        report(len(tokens))
    return Directions(matrix, embedding, tuple(tokens), tuple(cosines))
