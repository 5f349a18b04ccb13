"""FP8 products: the operations that `train.precision = "fp8"` computes with.

held       matrices and scales that a part of a model keeps for its products
casts      rounding to FP8, and products of rounded operands
products   the operations of a block made of these, plain and fused with our kernels
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
    """`plain` with the products of blocks in FP8, and fused with them if `plain` is our kernels.

    Fusing needs the lerp update: the others have no kernel.
    """

    def operand(
        *matrices: Tensor,
        factors: tuple[Tensor, Tensor] | None = None,
        held: Product | None = None,
    ) -> Operand:
        if held is None:  # not one of a block's own products: for example, cross-attention's
            return plain.operand(*matrices, factors=factors)
        return Operand8(matrices, factors, held)

    def where_rounded(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
        """`ours` for matrices held in FP8, `theirs` for all others."""

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
