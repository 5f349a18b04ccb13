"""Neurons as directions: the tokens nearest to what each reads (W_u) and writes (W_oMLP).

A row of W_u is compared with the hidden state, which begins as a row of E_input; a row of W_oMLP is
added to it, and the hidden state is read out by E_output. Shapes: F d_mlp, D d_model, V vocabulary,
N nearest tokens.
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
"""Tokens that are looked at again in float32 where the first look was in bfloat16, which tells
cosines apart to half a percent."""
GROUPS = 32
"""Parts of the vocabulary whose largest cosines are taken first: the nearest tokens are in the
nearest groups, and a maximum is many times faster than a sorting."""
AFFORDABLE = 2**40
"""Multiplications up to which a GPT's rows of all layers are compared, some ten seconds on two
cores; its rows are read through norms with gains, so their cosines mean less than nGPT's."""
_CHUNK = 512
_ENDS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, eq=False)
class Directions:
    """Every row of one matrix of one layer with its nearest tokens."""

    matrix: str
    embedding: str
    """Whose rows it was compared with."""
    layer: int
    """Counted from 1."""
    tokens: Tensor
    """(F, N), the nearest first"""
    cosines: Tensor
    """(F, N)"""

    def strongest(self, count: int) -> list[int]:
        """The rows that are nearest to any token."""
        order = self.cosines[:, 0].argsort(descending=True, stable=True)
        rows: list[int] = order[:count].tolist()
        return rows

    @property
    def nearest(self) -> tuple[float, float, float]:
        """The cosine with the nearest token: a tenth of all rows is below the first number, half
        below the second, nine tenths below the third."""
        low, middle, high = self.cosines[:, 0].quantile(torch.tensor(_ENDS)).tolist()
        return low, middle, high

    @property
    def _named(self) -> dict[str, Any]:
        return {"matrix": self.matrix, "embedding": self.embedding, "layer": self.layer}

    def summary(self) -> dict[str, Any]:
        """What is said of all rows together."""
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
    """The rows of W_u and W_oMLP of all layers; of a large GPT only those of `layer`, from 1.

    `report` hears of matrices done, and of how many there are; `bf16`: see `Nearest`.
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
    """The tokens of one embedding, ready to be compared with many rows.  E: (V, D)

    With `bf16` the first look at a large vocabulary on a CPU may be in bfloat16, where that is
    faster; `cpu_isa` says what has to be done before that is safe.
    """

    @torch.no_grad()
    def __init__(self, E: Tensor, bf16: bool = False) -> None:
        self.exact = torch.nn.functional.normalize(E.float(), dim=-1)
        self.count = min(NEAREST, len(E))
        self.missing = -len(E) % GROUPS  # to a vocabulary of whole groups
        self.quick = torch.nn.functional.pad(self.exact, (0, 0, 0, self.missing))
        if bf16 and E.device.type == "cpu" and E.numel() >= 2**22:
            halved = self.quick.bfloat16()
            self.quick = halved if _faster(halved, self.quick) else self.quick

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens with the largest cosines, and these: (F, D) -> (F, N), (F, N)"""
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
    """Whether products with one matrix are faster than with another on this machine."""

    def seconds(E: Tensor) -> float:
        rows = E[:64]
        _ = rows @ E.T  # the first makes ready
        before = time.perf_counter()
        _ = rows @ E.T
        return time.perf_counter() - before

    return seconds(one) < seconds(other)


def nearest_by_chance(tokens: int, d_model: int) -> float:
    """The median cosine of a random direction with the nearest of so many random ones.

    The largest of many normal numbers has Gumbel's distribution; a cosine c is rarer than a normal
    number would be, with density (1 − c²)^(D/2) in place of exp(−z²/2).
    """
    far = math.sqrt(2 * math.log(max(3, tokens)))
    z = far - math.log(2 * math.pi * far * far) / (2 * far) - math.log(math.log(2)) / far
    return math.sqrt(1 - math.exp(-z * z / d_model))
