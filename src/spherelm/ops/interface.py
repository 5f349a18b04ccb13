"""The operations that a model computes with: their signatures.

`reference` has each of them in plain PyTorch, `triton` as kernels; `choose` puts a set together. A
model calls `self.ops.update(...)` and does not know how it is computed.

Shapes: B batch, T time, S time of the keys, N = B·T, D d_model, H heads, G heads of k and v, K head
dimension, F d_mlp, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from typing_extensions import Self

Operand = Any
"""The matrices of one product, in the form that a set of operations wants; opaque to others."""


class ProjectQKV(Protocol):
    """q, k and v for attention: q and k rotated, and with s_qk also normalized and scaled.

    The scores are those of Norm(RoPE(h W_q)) · s_qk and Norm(RoPE(h W_k)) · s_qk, with Norm only if
    `qk_norm`; without s_qk, of RoPE(h W_q) and RoPE(h W_k). With `factors_on_q`, q takes both
    factors, s_qk², and k is a unit vector, as a cache keeps it; implementations may always do so.

    h: (B, T, D), W: of W_q (H·K, D), W_k, W_v (G·K, D), rope: (2, T, K/2) or (2, B, T, K/2),
    s_qk: (G·K,) -> q: (B, T, H, K), k, v: (B, T, G, K)
    """

    def __call__(
        self,
        h: Tensor,
        W: Operand,
        rope: Tensor,
        s_qk: Tensor | None,
        kv_heads: int,
        qk_norm: bool,
        factors_on_q: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]: ...


class Attend(Protocol):
    """softmax(q kᵀ · scale + M) v. M allows the keys that `mask` allows; without a mask, all keys,
    or if `causal` those up to the query's own position. A query that may see no key reads zeros.

    q: (B, T, H, K), k, v: (B, S, G, K), mask: (B, 1, T, S), true where allowed -> (B, T, H, K)
    """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor: ...


class Loss(Protocol):
    """Cross-entropy of the logits z = (E_output h) · s_z against targets: the sum or mean over the
    targets that are not `IGNORE_INDEX` (0 if there are none).

    h: (B, T, D), E_output: (V, D), s_z: (V,), targets: (B, T) -> scalar
    """

    def __call__(
        self, h: Tensor, E_output: Tensor, s_z: Tensor | None, targets: Tensor, reduction: str
    ) -> Tensor: ...


@dataclass(frozen=True)
class Operations:
    """One way to compute each operation."""

    kernels: bool
    """Whether these are our kernels; decoding then uses its own kernels too."""
    operand: Callable[..., Operand]
    """Prepares the matrices of one product, each (n, D). A model calls this once per forward pass,
    a folded one only once. `factors`, (n,) each, multiply their rows; `held` is what the part keeps
    for this product, if anything (`hold`)."""
    linear: Callable[[Tensor, Operand], Tensor]
    """x W.  x: (..., n), W: of (n, D) -> (..., D)"""
    qkv: ProjectQKV
    attend: Attend
    swiglu: Callable[[Tensor, Operand], Tensor]
    """u · SiLU(ν), u = h W_u, ν = h W_ν.  h: (..., D), W: of W_u, W_ν (F, D) -> (..., F)"""
    update: Callable[[Tensor, Tensor, Tensor], Tensor]
    """nGPT's step from h towards Norm(y): with lerp, Norm(h + α (Norm(y) − h)).
    h, y: (..., D), α: (D,) -> (..., D)"""
    rms_norm: Callable[[Tensor, Tensor], Tensor]
    """x / sqrt(mean x²) · gain.  x: (..., D), gain: (D,) -> (..., D)"""
    branch_rms_norm: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """h and RMSNorm(h).  h: (N, D), gain: (D,) -> (N, D) each"""
    add_rms_norm: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """h + y and RMSNorm(h + y).  h, y: (N, D), gain: (D,) -> (N, D) each"""
    loss: Loss
    argmax: Callable[[Tensor], Tensor]
    """The index of the largest number of each row, the first of several.  (N, V) -> (N,)"""
    hold: Callable[[bool, bool], Any] | None = None
    """Makes what a part keeps for its products between steps (`fp8.Held`); None if nothing."""

    def __deepcopy__(self, memo: object) -> Self:
        return self  # only functions, which a copy of a model can share
