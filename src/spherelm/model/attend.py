"""Which keys a query may see: all, the earlier ones, those of its document, those not padding.

A block takes an `Attend` and needs nothing more. Over the sequence itself it is one of the masks
below; over a key-value cache it is one of those in `spherelm.generation.cached`.

    CAUSAL                                        up to its own position: a decoder
    FULL                                          everything: an encoder
    within(documents)                             up to its own position in its own document
    among(padding=valid)                          all but padding: an encoder, or its memory

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
    """Attention over a sequence, to the `allowed` keys; by default to all, or to earlier ones."""

    causal: bool = True
    allowed: Tensor | None = None
    """(B, 1, T, S), true where a query may look; causality is already included."""

    def __post_init__(self) -> None:
        allowed = self.allowed
        if allowed is not None and (allowed.dtype != torch.bool or allowed.ndim == 3):
            # SDPA would add numbers to the scores, and take the batch of a (B, T, S) for heads.
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
    """Attention within documents, given the number of each token's document.

    With `source_documents`, the keys are another sequence's: a query sees the tokens there that
    have its document's number, at any position unless `causal`.

    documents: (B, T), source_documents: (B, S)
    """
    keys = documents if source_documents is None else source_documents
    same = documents[:, :, None] == keys[:, None, :]
    causal = source_documents is None if causal is None else causal
    return Mask(causal, (same.tril() if causal else same)[:, None])


def among(padding: Tensor, queries: int | None = None, causal: bool = False) -> Mask:
    """Attention to all keys but padding; if `causal`, only up to the query's own position.

    padding: (B, S), true where a token counts; queries: T if it differs from S
    """
    if padding.ndim != 2 or padding.dtype != torch.bool:
        raise UserError(
            f"padding must be a (batch, time) of booleans, true where a token counts, not "
            f"{tuple(padding.shape)} of {padding.dtype}"
        )
    allowed = padding[:, None, None].expand(-1, 1, queries or padding.shape[1], -1)
    return Mask(causal, allowed.tril() if causal else allowed)
