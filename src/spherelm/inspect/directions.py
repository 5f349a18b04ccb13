"""Neurons as directions: the tokens nearest to what each reads (W_u) and writes (W_oMLP).

A row of W_u is multiplied with the hidden state, which begins as a row of E_input; a row of W_oMLP
is added to the hidden state, which E_output reads out. Shapes: F d_mlp, D d_model, V vocabulary, N
nearest tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spherelm.model.transformer import Transformer

NEAREST = 5
CANDIDATES = 8
"""Tokens compared again in float32 after a first pass in bfloat16, which resolves cosines to half a
percent."""
GROUPS = 32
"""Members of each group of tokens. The largest cosine of every group is taken first: the nearest
tokens are in the nearest groups, and a maximum is many times faster than sorting."""
AFFORDABLE = 2**40
"""Up to this many multiplications, some ten seconds on two cores, a GPT's rows are compared in all
layers. They act through norms with gains, so their cosines mean less than nGPT's."""
_CHUNK = 512
_ENDS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, eq=False)
class Directions:
    """Every row of one matrix of one layer with its nearest tokens."""

    matrix: str
    embedding: str
    """The embedding matrix it was compared with."""
    layer: int
    """Counted from 1."""
    tokens: Tensor
    """(F, N), the nearest first"""
    cosines: Tensor
    """(F, N)"""

    def strongest(self, count: int) -> list[int]:
        """The `count` rows with the largest cosine to any token."""
        order = self.cosines[:, 0].argsort(descending=True, stable=True)
        rows: list[int] = order[:count].tolist()
        return rows

    @property
    def nearest(self) -> tuple[float, float, float]:
        """The 10 %, 50 % and 90 % quantiles over rows of the cosine with the nearest token."""
        low, middle, high = self.cosines[:, 0].quantile(torch.tensor(_ENDS)).tolist()
        return low, middle, high

    @property
    def _named(self) -> dict[str, Any]:
        return {"matrix": self.matrix, "embedding": self.embedding, "layer": self.layer}

    def summary(self) -> dict[str, Any]:
        """The numbers about all rows together."""
        return {**self._named, "nearest": self.nearest}

    def rows(self) -> dict[str, Any]:
        """All rows, cosines with four decimals."""
        cosines = [[round(c, 4) for c in row] for row in self.cosines.tolist()]
        return {**self._named, "tokens": self.tokens.tolist(), "cosines": cosines}


def look_at_directions(
    model: Transformer,
    layer: int,
    report: Callable[[int, int], None] = lambda done, all: None,
    bf16: bool = False,
) -> list[Directions]:
    """The rows of W_u and W_oMLP of all layers, or for a large GPT only of `layer`, from 1.

    `report` is called with the number of matrices done and their total; `bf16`: see `Nearest`.
    """
    config = model.config
    work = 2 * config.n_layers * model.layers[0].mlp.W_u.numel() * model.E_input.shape[0]
    chosen = [layer]
    if model.spherical or work <= AFFORDABLE:
        chosen = list(range(1, config.n_layers + 1))
    found = []
    for matrix, embedding, E in (
        ("W_u", "E_input", model.E_input),
        ("W_o_mlp", "E_output", model.E_input if model.E_output is None else model.E_output),
    ):
        near = Nearest(E, bf16)
        for each in chosen:
            rows = getattr(model.layers[each - 1].mlp, matrix)
            found.append(Directions(matrix, embedding, each, *near(rows)))
            report(len(found), 2 * len(chosen))
    return found


class Nearest:
    """Finds the tokens of one embedding that are nearest to given rows.  E: (V, D)

    With `bf16` the first pass over a large vocabulary on a CPU is in bfloat16 if that is faster;
    see `cpu_isa` for what makes that safe.
    """

    @torch.no_grad()
    def __init__(self, E: Tensor, bf16: bool = False) -> None:
        self.exact = torch.nn.functional.normalize(E.float(), dim=-1)
        self.count = min(NEAREST, len(E))
        self.missing = -len(E) % GROUPS  # padding to whole groups
        self.quick = torch.nn.functional.pad(self.exact, (0, 0, 0, self.missing))
        if bf16 and E.device.type == "cpu" and E.numel() >= 2**22:
            halved = self.quick.bfloat16()
            self.quick = halved if _faster(halved, self.quick) else self.quick

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens with the largest cosines, and the cosines: (F, D) -> (F, N), (F, N)"""
        unit = torch.nn.functional.normalize(rows.float(), dim=-1)
        parts = [self._part(part) for part in unit.split(_CHUNK)]
        tokens, cosines = (torch.cat(each).cpu() for each in zip(*parts, strict=True))
        return tokens, cosines

    def _part(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        cosines = unit.to(self.quick.dtype) @ self.quick.T
        if self.missing:
            cosines[:, -self.missing :] = -math.inf
        grouped = cosines.unflatten(-1, (GROUPS, -1))  # (F, groups' members, groups)
        columns = grouped.shape[-1]
        best = grouped.amax(-2).topk(min(CANDIDATES, columns), dim=-1).indices
        members = columns * torch.arange(GROUPS, device=best.device)
        tokens = (best[:, :, None] + members).flatten(1)
        near = cosines.gather(-1, tokens).topk(min(CANDIDATES, len(self.exact)), dim=-1)
        tokens = tokens.gather(-1, near.indices)
        exact = torch.bmm(self.exact[tokens], unit[:, :, None])[:, :, 0]
        nearest = exact.topk(self.count, dim=-1)
        return tokens.gather(-1, nearest.indices), nearest.values


def _faster(one: Tensor, other: Tensor) -> bool:
    """Whether products with `one` are faster on this machine than with `other`."""

    def seconds(E: Tensor) -> float:
        rows = E[:64]
        _ = rows @ E.T  # warm-up
        before = time.perf_counter()
        _ = rows @ E.T
        return time.perf_counter() - before

    return seconds(one) < seconds(other)


def nearest_by_chance(tokens: int, d_model: int) -> float:
    """The median cosine of a random direction with the nearest of `tokens` random directions.

    The largest of many normal numbers follows Gumbel's distribution. Large cosines c are rarer than
    that: their density is (1 − c²)^(D/2) instead of exp(−z²/2).
    """
    far = math.sqrt(2 * math.log(max(3, tokens)))
    z = far - math.log(2 * math.pi * far * far) / (2 * far) - math.log(math.log(2)) / far
    return math.sqrt(1 - math.exp(-z * z / d_model))
