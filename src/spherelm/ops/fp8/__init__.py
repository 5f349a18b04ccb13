"""Products of eight-bit numbers: the operations that `train.precision = "fp8"` computes with.

held       matrices and scales that a part of a model keeps for its products
casts      rounding, and products of what was rounded
products   the operations of a block made of them, plain and fused with our kernels
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from spherelm.ops.fp8.held import Held, Product
from spherelm.ops.fp8.products import Fused, Operand8, Plain
from spherelm.ops.interface import Operand, Operations


def with_fp8(plain: Operations, lerp: bool) -> Operations:
    """`plain` with products of blocks in eight bits; fused with its kernels where they are ours.

    Only the update by linear interpolation has a kernel to be fused with.
    """

    def operand(
        *matrices: Tensor,
        factors: tuple[Tensor, Tensor] | None = None,
        held: Product | None = None,
    ) -> Operand:
        if held is None:  # not a product of a block, such as attention to another sequence
            return plain.operand(*matrices, factors=factors)
        return Operand8(matrices, factors, held)

    def where_rounded(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
        """`ours` for matrices that are held, `theirs` for all others."""

        def run(x: Any, W: Operand, *rest: Any, **named: Any) -> Any:
            return (ours if isinstance(W, Operand8) else theirs)(x, W, *rest, **named)

        return run

    kernels = plain.kernels and lerp
    ours: Any = Fused if kernels else Plain
    return replace(
        plain,
        hold=Held,
        operand=operand,
        linear=where_rounded(ours.linear, plain.linear),
        qkv=where_rounded(ours.qkv, plain.qkv),
        swiglu=where_rounded(ours.swiglu, plain.swiglu),
        update=ours.update if kernels else plain.update,
    )
