"""What a set of operations is: the signatures that a model computes with.

`reference` has each of them in plain PyTorch, `triton` as kernels; `choose` puts a set together. A
model calls `self.ops.update(...)` and knows nothing more of how it is computed.

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
"""The matrices of one product as a set of operations takes them; no one else looks inside."""


class ProjectQKV(Protocol):
    """q and k with position, on the sphere where s_qk is given, and v, as attention wants them.

    Their scores are those of Norm(RoPE(h W_q)) · s_qk and Norm(RoPE(h W_k)) · s_qk, Norm only where
    `qk_norm`; without s_qk, of RoPE(h W_q) and RoPE(h W_k). With `factors_on_q` both factors are on
    q, and k is a unit vector: what a cache keeps.

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
    """softmax(q kᵀ · scale + M) v: M allows what `mask` does; without one all keys, or where
    `causal` those up to the query's own place. A query that may see no key reads zeros.

    q: (B, T, H, K), k, v: (B, S, G, K), mask: (B, 1, T, S), true where allowed -> (B, T, H, K)
    """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor: ...


class Loss(Protocol):
    """Cross-entropy of the logits z = (E_output h) · s_z against targets: their sum or mean over
    the targets that are not `IGNORE_INDEX` (0 where there are none).

    h: (B, T, D), E_output: (V, D), s_z: (V,), targets: (B, T) -> scalar
    """

    def __call__(
        self, h: Tensor, E_output: Tensor, s_z: Tensor | None, targets: Tensor, reduction: str
    ) -> Tensor: ...


@dataclass(frozen=True)
class Operations:
    """One way to compute each operation."""

    kernels: bool
    """Whether these are our kernels; decoding has kernels of its own to go with them."""
    operand: Callable[..., Operand]
    """The matrices of one product, each (n, D), made ready for it: a model calls this once a
    forward pass, a folded one once for all. `factors`, (n,) each, multiply their rows; `held` is
    what a part keeps for this product, where it keeps anything (`hold`)."""
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
    """What a part keeps for its products between steps (`fp8.Held`); None where it is nothing."""

    def __deepcopy__(self, memo: object) -> Self:
        return self  # functions: a copy of a model computes as the model does
