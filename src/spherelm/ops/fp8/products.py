"""The products of a block in FP8, with their derivatives.

    forward             y  = x W           input and matrices in e4m3
    gradient of x       dx = dy Wᵀ         dy in e5m2: less precise, but it spans 2^32
    gradient of W       dW = xᵀ dy         in float32

In `Plain`, each product is a `_Multiply`, which rounds its own operands. In `Fused`, operands are
rounded by the kernel that produces them, so three products are fused with their neighbours:

    _QKV         the product, RoPE and the norms of q and k; their backward produces FP8
    _SwiGLU      the product and SwiGLU, whose result and gradient exist only in FP8
    _Update      the product and nGPT's update, whose backward produces dy in FP8

FP8 tensors pass between them as plain bytes, which autograd does not differentiate; it follows a
`carrier` of the right shape instead, whose numbers nobody reads.

Shapes: N = B·T tokens, D d_model, F d_mlp, H heads, G heads of k and v, K head dimension.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from spherelm.ops import reference
from spherelm.ops.eight_bits import E4M3
from spherelm.ops.fp8.casts import backward_products, cast, forward_product, turn
from spherelm.ops.fp8.held import GRADIENT, INPUT, Product
from spherelm.ops.reference import first_derivative


class Operand8(NamedTuple):
    """The matrices of a product: the parameters, for autograd; their factors; and the rounded
    ones."""

    matrices: tuple[Tensor, ...]
    factors: tuple[Tensor, Tensor] | None
    product: Product


class Rounded(NamedTuple):
    """The input of a product, already rounded by the operation that made it."""

    carrier: Tensor
    bits: Tensor
    turned: Tensor


class Later(NamedTuple):
    """A deferred product, computed by the update that takes its result."""

    x: Tensor | Rounded
    W: Operand8

    def view(self, *_shape: object) -> Later:
        return self


class Fork(NamedTuple):
    """A hidden state read by an update and a product, which return its gradient separately."""

    stream: Tensor
    to_product: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.stream.dtype

    def view(self, *shape: Any) -> Tensor:
        return self.stream.view(*shape)


def _gradients_of(matrices: tuple[Tensor, ...], packed: Tensor) -> list[Tensor]:
    parts = packed.split([m.shape[0] for m in matrices])
    return [part.to(m.dtype) for part, m in zip(parts, matrices, strict=True)]


class _Multiply(Function):
    """x Wᵀ, or x W for an `out`put matrix.  x: (N, C)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: bool, fused: bool, *rest: Any) -> Tensor:
        product, matrices = Product(*rest[: len(Product._fields)]), rest[len(Product._fields) :]
        bits, turned = cast(x, product, INPUT, fused)
        ctx.save_for_backward(turned, *product[:5], *matrices)
        ctx.settings = x.dtype, out, fused, product[5:]
        return forward_product(bits, product, x.dtype, out)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> Any:
        dtype, out, fused, settings = ctx.settings
        turned, *held = ctx.saved_tensors
        product, matrices = Product(*held[:5], *settings), tuple(held[5:])
        bits, grad_turned = cast(grad, product, GRADIENT, fused)
        grad_x, grad_W = backward_products(turned, bits, grad_turned, product, dtype, out)
        none = [None] * (2 + len(product))
        return grad_x, *none, *_gradients_of(matrices, grad_W)


def multiply(x: Tensor, W: Operand8, out: bool, fused: bool) -> Tensor:
    """A product on its own.  x: (..., C) -> (..., M)"""
    rows = x.reshape(-1, x.shape[-1])
    y: Tensor = _Multiply.apply(rows, out, fused, *W.product, *W.matrices)
    return y.view(*x.shape[:-1], y.shape[-1])


class Plain:
    """FP8 products, with the reference's operations around them."""

    @staticmethod
    def linear(x: Tensor, W: Any) -> Tensor:
        return multiply(x, W, True, False)

    @staticmethod
    def qkv(
        h: Tensor, W: Any, rope: Tensor, s_qk: Tensor | None, kv_heads: int, qk_norm: bool,
        factors_on_q: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        packed = multiply(h, W, False, False)
        q, k, v = packed.split([m.shape[0] for m in W.matrices], dim=-1)
        return reference.place_qkv(q, k, v, rope, s_qk, kv_heads, qk_norm, factors_on_q)

    @staticmethod
    def swiglu(h: Tensor, W: Any) -> Tensor:
        u, nu = multiply(h, W, False, False).chunk(2, dim=-1)
        if W.factors is not None:
            u, nu = u * W.factors[0].to(u.dtype), nu * W.factors[1].to(nu.dtype)
        return reference.swiglu(u, nu)


class _QKV(Function):
    """q, k and v, ready for attention.  h: (B, T, D)"""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, table: Tensor, s_qk: Tensor | None, heads: int, kv_heads: int,
        qk_norm: bool, *rest: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        from spherelm.ops.triton.qk import qk_on_sphere_, rotate_qk_

        product, matrices = Product(*rest[: len(Product._fields)]), rest[len(Product._fields) :]
        batch, T = h.shape[:2]
        bits, turned = cast(h.flatten(0, 1), product, INPUT, True)
        packed = forward_product(bits, product, h.dtype, False)
        kept: tuple[Tensor | None, ...]
        if s_qk is None:
            rotate_qk_(packed, table, heads, kv_heads)
            kept = None, None, None
        else:
            rotated_q, inverse = qk_on_sphere_(packed, table, s_qk, heads, kv_heads, qk_norm)
            kept = s_qk, packed, inverse
        ctx.save_for_backward(turned, table, *kept, *product[:5], *matrices)
        ctx.settings = h.shape, h.dtype, qk_norm, product[5:]
        per_head = packed.view(batch, T, heads + 2 * kv_heads, -1)
        q, k, v = per_head.split((heads, kv_heads, kv_heads), dim=2)
        return (q if s_qk is None else rotated_q.view(batch, T, heads, -1)), k, v

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad_q: Tensor, grad_k: Tensor, grad_v: Tensor) -> Any:
        from spherelm.ops.fp8.fused import qkv_backward

        shape, dtype, qk_norm, settings = ctx.settings
        turned, table, s_qk, packed, inverse, *held = ctx.saved_tensors
        product, matrices = Product(*held[:5], *settings), tuple(held[5:])
        bits, grad_turned, dot = qkv_backward(
            packed, table, s_qk, inverse, grad_q, grad_k, grad_v, qk_norm,
            product.scale, product.amax, product.slot + GRADIENT,
        )  # fmt: skip
        grad_h, grad_W = backward_products(turned, bits, grad_turned, product, dtype, False)
        grad_s_qk = None if s_qk is None else (2 * s_qk * dot).to(s_qk.dtype)
        none = [None] * (3 + len(product))
        return grad_h.view(shape), None, grad_s_qk, *none, *_gradients_of(matrices, grad_W)


class _SwiGLU(Function):
    """A carrier of (s_u h W_u) · SiLU(s_ν h W_ν), and its bits.  h: (N, D) -> (N, F)"""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, s_u: Tensor | None, s_nu: Tensor | None, *rest: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        from spherelm.ops.fp8.fused import swiglu

        product, matrices = Product(*rest[: len(Product._fields)]), rest[len(Product._fields) :]
        bits, turned = cast(h, product, INPUT, True)
        packed = forward_product(bits, product, h.dtype, False)
        # Its result is the input of the output product, W_oMLP's.
        a, a_turned = swiglu(
            packed, s_u, s_nu, product.scale, product.amax, 3 + INPUT, not product.sphere
        )
        ctx.save_for_backward(turned, packed, s_u, s_nu, *product[:5], *matrices)
        ctx.settings = h.dtype, product[5:]
        carrier = packed[:, : a.shape[1]]
        return carrier, a.view(torch.uint8), a_turned.view(torch.uint8)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor, *_bits: Any) -> Any:
        from spherelm.ops.fp8.fused import swiglu_backward

        dtype, settings = ctx.settings
        turned, packed, s_u, s_nu, *held = ctx.saved_tensors
        product, matrices = Product(*held[:5], *settings), tuple(held[5:])
        bits, grad_turned, grad_factors = swiglu_backward(
            packed, s_u, s_nu, grad, product.scale, product.amax, product.slot + GRADIENT
        )
        grad_h, grad_W = backward_products(turned, bits, grad_turned, product, dtype, False)
        if s_u is None:
            grad_s_u = grad_s_nu = None
        else:
            grad_s_u, grad_s_nu = grad_factors.to(s_u.dtype).chunk(2)
        none = [None] * len(product)
        return grad_h, grad_s_u, grad_s_nu, *none, *_gradients_of(matrices, grad_W)


class _Update(Function):
    """nGPT's update of h towards x W; returned twice if it is read twice (`Fork`).  h: (N, D)"""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, x: Tensor, bits: Tensor | None, turned: Tensor | None, alpha: Tensor,
        *rest: Any,
    ) -> Any:  # fmt: skip
        from spherelm.ops.triton.residual import residual_lerp

        product, (W,) = Product(*rest[: len(Product._fields)]), rest[len(Product._fields) :]
        if bits is None or turned is None:
            bits, turned = cast(x, product, INPUT, True)
        y = forward_product(bits.view(E4M3), product, h.dtype, True)
        new = residual_lerp(h, y, alpha)
        ctx.save_for_backward(h, y, alpha, turned, *product[:5], W)
        ctx.settings = x.shape, product[5:]
        return (new, new.view_as(new)) if product.forks else new

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor, *more: Tensor) -> Any:
        from spherelm.ops.fp8.fused import update_backward

        shape, settings = ctx.settings
        h, y, alpha, turned, *held, W = ctx.saved_tensors
        product = Product(*held, *settings)
        grad_h, bits, grad_alpha = update_backward(
            h, y, alpha, grad, more[0] if more else None, product.scale, product.amax,
            product.slot + GRADIENT,
        )  # fmt: skip
        grad_x, grad_W = backward_products(
            turned.view(E4M3), bits, turn(bits), product, h.dtype, True
        )
        none = [None] * len(product)
        grad_alpha, grad_W = grad_alpha.to(alpha.dtype), grad_W.to(W.dtype)
        return grad_h, grad_x.view(shape), None, None, grad_alpha, *none, grad_W


class Fused:
    """FP8 products, fused with our kernels."""

    @staticmethod
    def linear(x: Tensor | Rounded, W: Any) -> Any:
        if W.product.sphere:
            return Later(x, W)
        if isinstance(x, Rounded):
            return _multiply_rounded(x, W)
        return multiply(x, W, True, True)

    @staticmethod
    def qkv(
        h: Tensor, W: Any, rope: Tensor, s_qk: Tensor | None, kv_heads: int, qk_norm: bool,
        factors_on_q: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        table = rope.flatten(1, -2)
        heads = W.matrices[0].shape[0] // (2 * table.shape[2])
        factors = None if s_qk is None else s_qk.contiguous()
        q, k, v = _QKV.apply(h, table, factors, heads, kv_heads, qk_norm, *W.product, *W.matrices)
        return q, k, v

    @staticmethod
    def swiglu(h: Tensor | Fork, W: Any) -> Rounded:
        rows = h.to_product if isinstance(h, Fork) else h
        s_u, s_nu = W.factors or (None, None)
        return Rounded(*_SwiGLU.apply(rows, s_u, s_nu, *W.product, *W.matrices))

    @staticmethod
    def update(h: Tensor | Fork, y: Any, alpha: Tensor) -> Any:
        stream = h.stream if isinstance(h, Fork) else h
        if not isinstance(y, Later):
            from spherelm.ops import triton as kernels

            return kernels.residual_lerp(stream, y, alpha)
        x, W = y
        given = x if isinstance(x, Rounded) else (x.reshape(-1, x.shape[-1]), None, None)
        new = _Update.apply(stream, *given, alpha, *W.product, *W.matrices)
        return Fork(*new) if W.product.forks else new


class _MultiplyRounded(Function):
    """x W for an input that is already rounded: GPT's W_oMLP.  x: (N, F)"""

    @staticmethod
    def forward(ctx: Any, carrier: Tensor, bits: Tensor, turned: Tensor, *rest: Any) -> Tensor:
        product, (W,) = Product(*rest[: len(Product._fields)]), rest[len(Product._fields) :]
        ctx.save_for_backward(turned, *product[:5], W)
        ctx.settings = carrier.dtype, product[5:]
        return forward_product(bits.view(E4M3), product, carrier.dtype, True)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> Any:
        dtype, settings = ctx.settings
        turned, *held, W = ctx.saved_tensors
        product = Product(*held, *settings)
        bits, grad_turned = cast(grad, product, GRADIENT, True)
        grad_x, grad_W = backward_products(
            turned.view(E4M3), bits, grad_turned, product, dtype, True
        )
        return grad_x, None, None, *[None] * len(product), grad_W.to(W.dtype)


def _multiply_rounded(x: Rounded, W: Operand8) -> Tensor:
    y: Tensor = _MultiplyRounded.apply(*x, *W.product, *W.matrices)
    return y
