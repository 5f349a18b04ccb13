"""Which keys a query sees: all, those before it, those of its document, those that are no padding.

A block is given one of these and asks nothing more: over the sequence itself they are masks, over a
cache (`spherelm.generation.cached`) the same question has another answer.

    CAUSAL                                        up to one's own place: a decoder
    FULL                                          everything: an encoder
    within(documents)                             up to one's own place in one's own document
    among(padding=valid)                          what is no padding: an encoder, or its memory

Shapes: B batch, T time of the queries, S time of the keys, H heads, G heads of k and v, K head
dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from spherelm.errors import UserError
from spherelm.ops.interface import Operations


class Attend(Protocol):
    """q: (B, T, H, K), k, v: (B, S, G, K) -> what the heads read: (B, T, H, K)"""

    def __call__(
        self, ops: Operations, q: Tensor, k: Tensor, v: Tensor, scale: float
    ) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Mask:
    """Attention over a sequence: the keys of `allowed`, and without it all, or those before."""

    causal: bool = True
    allowed: Tensor | None = None
    """(B, 1, T, S), true where a query may look; causality is in it."""

    def __post_init__(self) -> None:
        allowed = self.allowed
        if allowed is not None and (allowed.dtype != torch.bool or allowed.ndim == 3):
            # Numbers would be added to the scores, and a batch would be taken for heads.
            raise UserError(
                f"allowed must be a (batch, 1, time, time) of booleans, true where a query may "
                f"look, not {tuple(allowed.shape)} of {allowed.dtype}"
            )

    def __call__(self, ops: Operations, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return ops.attend(q, k, v, self.allowed, self.causal, scale)


CAUSAL = Mask()
FULL = Mask(causal=False)


def within(
    documents: Tensor, source_documents: Tensor | None = None, causal: bool | None = None
) -> Mask:
    """Attention inside a document, of tokens that are numbered by theirs.

    Over another sequence a query sees the tokens of its number there, in any place unless `causal`.

    documents: (B, T), source_documents: (B, S)
    """
    keys = documents if source_documents is None else source_documents
    same = documents[:, :, None] == keys[:, None, :]
    causal = source_documents is None if causal is None else causal
    return Mask(causal, (same.tril() if causal else same)[:, None])


def among(padding: Tensor, queries: int | None = None, causal: bool = False) -> Mask:
    """Attention to the keys that are no padding; where `causal`, only up to one's own place.

    padding: (B, S), true where a token counts; queries: T where it is not S
    """
    if padding.ndim != 2 or padding.dtype != torch.bool:
        raise UserError(
            f"padding must be a (batch, time) of booleans, true where a token counts, not "
            f"{tuple(padding.shape)} of {padding.dtype}"
        )
    allowed = padding[:, None, None].expand(-1, 1, queries or padding.shape[1], -1)
    return Mask(causal, allowed.tril() if causal else allowed)
