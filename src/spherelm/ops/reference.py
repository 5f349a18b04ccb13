"""Each operation of a block in plain PyTorch: the specification, and what runs on a CPU.

Lengths, softmax and loss are computed in float32 whatever the inputs (float64 stays float64), and
results are returned in the dtype of the hidden state.

The operations that every step runs have a hand-written derivative: a CPU's time goes into passes
over memory, and autograd would make two to three times as many. `gradcheck` tests each against its
forward. They save values computed in the forward, which a second derivative would take for
constants, so asking for one is an error.

Shapes: B batch, T time, D d_model, H heads, G heads of k and v, K head dimension, F d_mlp,
V vocabulary. Lengths and dot products keep the summed dimension with size 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from spherelm.errors import UserError
from spherelm.ops.interface import Operand
from spherelm.ops.names import IGNORE_INDEX

NORM_EPS = 1e-12
"""Lengths are at least this, so that Norm(0) is 0, not NaN. Far below any length that occurs.

The autograd functions below write this number and the next one as literals: a named float is an
input to `torch.compile(dynamic=True)`, which torch 2.13 loses from one such function to another.
"""

RMS_NORM_EPS = 1e-6


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def _length(x: Tensor) -> Tensor:
    """‖x‖ over the last dimension, at least NORM_EPS: (..., D) -> (..., 1)"""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)


def _unit(x: Tensor) -> Tensor:
    """x / ‖x‖ over the last dimension, in x's own precision."""
    return x / _length(x)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb over the last dimension: (..., D), (..., D) -> (..., 1)"""
    return (a * b).sum(-1, keepdim=True)


def _through_unit(grad: Tensor, unit: Tensor, length: Tensor) -> Tensor:
    """The gradient of x where `unit` = x / ‖x‖: (g − unit (unitᵀg)) / ‖x‖."""
    return torch.addcmul(grad, unit, _dot(grad, unit), value=-1).div_(length)


def _sum_to_vector(x: Tensor) -> Tensor:
    """Sum over all dimensions but the last: (..., D) -> (D,)"""
    return x.flatten(0, -2).sum(0)


def _result(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`, as a forward may return it.

    Under torch.compile that is never x itself, nor a `to` that does nothing: torch 2.11 loses the
    gradient of a result that was changed in place, or has two names (pytorch #180642).
    """
    if x.dtype != dtype:
        return x.to(dtype)
    return x.view_as(x) if torch.compiler.is_compiling() else x


def first_derivative(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse `create_graph=True`. With torch's own `once_differentiable`, autograd.grad silently
    omits what it cannot differentiate."""

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise UserError(
                "there are no second derivatives of a model's operations (create_graph=True); "
                "take finite differences of gradients"
            )
        return backward(ctx, *grads)

    return checked


class _Normalize(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        length = _length(wide)
        unit = wide / length
        ctx.save_for_backward(unit, length)
        return _result(unit, x.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        unit, length = ctx.saved_tensors
        return _through_unit(at_least_float32(grad), unit, length).to(grad.dtype)


def normalize(x: Tensor) -> Tensor:
    """Norm(x) = x / ‖x‖ over the last dimension.  x: (..., D) -> (..., D)"""
    return _Normalize.apply(x)  # type: ignore[no-untyped-call]


def check_update(h: Tensor, y: Tensor, alpha: Tensor) -> None:
    """Refuse shapes that an update does not support. A kernel would read past the end of a smaller
    h or y, and if each token had its own α, use the first token's for all."""
    if y.shape != h.shape or alpha.shape != h.shape[-1:]:
        raise UserError(
            f"an update takes h and y of one shape (..., D) and alpha of (D,), not h of "
            f"{tuple(h.shape)}, y of {tuple(y.shape)} and alpha of {tuple(alpha.shape)}"
        )


class _ResidualLerp(Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
        a, b = at_least_float32(h), at_least_float32(y)
        length_y = _length(b)
        b = b / length_y
        moved = torch.lerp(a, b, alpha.to(a.dtype))
        length = _length(moved)
        out = moved.div_(length)
        ctx.save_for_backward(h, b, length_y, alpha, out, length)
        return _result(out, h.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, b, length_y, alpha, out, length = ctx.saved_tensors
        grad_moved = _through_unit(at_least_float32(grad), out, length)
        grad_b = grad_moved * alpha.to(grad_moved.dtype)
        grad_h = grad_moved - grad_b
        grad_alpha = _sum_to_vector((b - at_least_float32(h)).mul_(grad_moved))
        grad_y = _through_unit(grad_b, b, length_y)
        return grad_h.to(h.dtype), grad_y.to(grad.dtype), grad_alpha.to(alpha.dtype)


def residual_lerp(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(h + α (Norm(y) − h)): the update of nGPT, with y the output of a block.

    h, y: (B, T, D), alpha: (D,) -> (B, T, D)
    """
    check_update(h, y, alpha)
    return _ResidualLerp.apply(h, y, alpha)  # type: ignore[no-untyped-call]


def slerp_weights(a: Tensor, b: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """sin((1−α)θ)/sin θ and sin(αθ)/sin θ, θ the angle between the unit vectors a and b.

    The angle comes from half-chords, 2·atan2(‖a−b‖, ‖a+b‖), which is exact where arccos is not; the
    ratios of sines are ratios of sinc, which have a limit at θ = 0. At opposite points the
    denominator is held away from zero.

    a, b: (..., D), alpha: (D,) -> (..., D) each
    """
    half_sin = torch.linalg.vector_norm(a - b, dim=-1, keepdim=True)
    half_cos = torch.linalg.vector_norm(a + b, dim=-1, keepdim=True)
    turns = 2 * torch.atan2(half_sin, half_cos) / math.pi  # θ/π in [0, 1]
    sin_ratio = torch.sinc(turns).clamp_min(1e-4)  # sin θ / θ
    weight_a = (1 - alpha) * torch.sinc((1 - alpha) * turns) / sin_ratio
    weight_b = alpha * torch.sinc(alpha * turns) / sin_ratio
    return weight_a, weight_b


def residual_slerp(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(sin((1−α)θ)/sin θ · h + sin(αθ)/sin θ · Norm(y)), θ the angle between h and y.

    If α is the same for all coordinates this moves along the geodesic, and Norm only removes
    rounding. At opposite points there is no shortest path; where the sum is zero, h stays.

    h, y: (B, T, D), alpha: (D,) -> (B, T, D)
    """
    check_update(h, y, alpha)
    a, b = at_least_float32(h), _unit(at_least_float32(y))
    weight_a, weight_b = slerp_weights(a, b, alpha.to(a.dtype))
    moved = weight_a * a + weight_b * b
    lost = torch.linalg.vector_norm(moved, dim=-1, keepdim=True) < NORM_EPS
    return _unit(torch.where(lost, a, moved)).to(h.dtype)


def residual_riemannian(h: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Norm(h − α (h (hᵀb) − b)), b = Norm(y): the step in the tangent space at h (appendix).

    h, y: (B, T, D), alpha: (D,) -> (B, T, D)
    """
    check_update(h, y, alpha)
    a, b = at_least_float32(h), _unit(at_least_float32(y))
    gradient = a * _dot(a, b) - b
    return _unit(a - alpha.to(a.dtype) * gradient).to(h.dtype)


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        wide = at_least_float32(x)
        # sqrt(mean x² + eps) from the length: one pass, no tensor of squares.
        square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_()
        inverse = square.div_(x.shape[-1]).add_(1e-6).rsqrt_()
        unscaled = wide * inverse
        ctx.save_for_backward(unscaled, inverse, gain)
        return _result(unscaled * gain.to(wide.dtype), x.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        unscaled, inverse, gain = ctx.saved_tensors
        wide = at_least_float32(grad)
        grad_gain = _sum_to_vector(wide * unscaled).to(gain.dtype)
        wide = wide * gain.to(wide.dtype)
        mean = _dot(wide, unscaled).div_(grad.shape[-1])
        return torch.addcmul(wide, unscaled, mean, value=-1).mul_(inverse).to(grad.dtype), grad_gain


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean x²) · gain: GPT's norm.  x: (..., D), gain: (D,) -> (..., D)"""
    return _RMSNorm.apply(x, gain)  # type: ignore[no-untyped-call]


def branch_rms_norm(h: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """h and its RMSNorm."""
    return h, rms_norm(h, gain)


def add_rms_norm(h: Tensor, y: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """h + y and its RMSNorm."""
    total = h + y
    return total, rms_norm(total, gain)


def _rotate(x: Tensor, table: Tensor | None, forth: bool = True) -> Tensor:
    """Rotate the pairs of x's heads, (..., T, H, K), by the angles of the table, or back."""
    if table is None:
        return x
    cos, sin = table.to(x.dtype).unsqueeze(-2)  # (T, 1, K/2) each, or (B, T, 1, K/2)
    sign = 1 if forth else -1
    first, second = x.chunk(2, dim=-1)
    new_first = (first * cos).addcmul_(second, sin, value=-sign)
    new_second = (second * cos).addcmul_(first, sin, value=sign)
    return torch.cat((new_first, new_second), dim=-1)


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(table)
        return _result(_rotate(at_least_float32(x), table), x.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (table,) = ctx.saved_tensors
        return _rotate(at_least_float32(grad), table, forth=False).to(grad.dtype), None


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i+K/2}) at position t by its angle in `rope_table`.

    x: (B, T, H, K), table: (2, T, K/2), or (2, B, T, K/2) -> (B, T, H, K)
    """
    return _Rotate.apply(x, table)  # type: ignore[no-untyped-call]


class _HeadsOnSphere(Function):
    """Norm(RoPE(x)) · factors, factors: (H, K)"""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor | None, factors: Tensor, qk_norm: bool
    ) -> Tensor:
        rotated = _rotate(at_least_float32(x), table)
        length = _length(rotated) if qk_norm else None
        unit = rotated if length is None else rotated / length
        ctx.save_for_backward(table, factors, unit, length)
        return _result(unit * factors.to(unit.dtype), x.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, None]:
        table, factors, unit, length = ctx.saved_tensors
        wide = at_least_float32(grad)
        grad_factors = (wide * unit).flatten(0, -3).sum(0).to(factors.dtype)
        wide = wide * factors.to(wide.dtype)
        if length is not None:
            wide = _through_unit(wide, unit, length)
        return _rotate(wide, table, forth=False).to(grad.dtype), None, grad_factors, None


def heads_on_sphere(
    x: Tensor, table: Tensor | None, s_qk: Tensor, kv_heads: int, qk_norm: bool
) -> Tensor:
    """Norm(RoPE(x)) · s_qk per head; Norm only if `qk_norm`, RoPE only if there is a table.

    The heads of q that share a head of k share its factors.

    x: (B, T, H, K), table: (2, T, K/2), s_qk: (G·K,) -> (B, T, H, K)
    """
    factors = s_qk.view(kv_heads, -1)  # (G, K)
    shared = factors.repeat_interleave(x.shape[-2] // kv_heads, dim=0)  # (H, K)
    return _HeadsOnSphere.apply(x, table, shared, qk_norm)  # type: ignore[no-untyped-call]


def qk_on_sphere(
    q: Tensor, k: Tensor, table: Tensor, s_qk: Tensor, qk_norm: bool
) -> tuple[Tensor, Tensor]:
    """Norm(RoPE(q)) · s_qk and Norm(RoPE(k)) · s_qk, per head; Norm only if `qk_norm`.

    q: (B, T, H, K), k: (B, T, G, K), table: (2, T, K/2), s_qk: (G·K,) -> q, k
    """
    kv_heads = k.shape[-2]
    return (
        heads_on_sphere(q, table, s_qk, kv_heads, qk_norm),
        heads_on_sphere(k, table, s_qk, kv_heads, qk_norm),
    )


def with_factors(
    matrices: tuple[Tensor, ...], factors: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, ...]:
    """Matrices with their rows multiplied: (n, D), (n,) each -> (n, D)

    (h W) · s = h (W · s): scaling F·D weights is cheaper than scaling B·T·F activations.
    """
    if factors is None:
        return matrices
    return tuple(W * s[:, None] for W, s in zip(matrices, factors, strict=True))


def operand(
    *matrices: Tensor, factors: tuple[Tensor, Tensor] | None = None, held: object = None
) -> Operand:
    """The matrices of a product, side by side."""
    return with_factors(matrices, factors)


def linear(x: Tensor, W: Operand) -> Tensor:
    """x W.  x: (..., n), W: of (n, D) -> (..., D)"""
    return x @ W[0]


def project_qkv(
    h: Tensor,
    W: Operand,
    rope: Tensor,
    s_qk: Tensor | None,
    kv_heads: int,
    qk_norm: bool,
    factors_on_q: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `interface.ProjectQKV`."""
    q, k, v = (F.linear(h, matrix) for matrix in W)
    return place_qkv(q, k, v, rope, s_qk, kv_heads, qk_norm, factors_on_q)


def place_qkv(
    q: Tensor, k: Tensor, v: Tensor, rope: Tensor, s_qk: Tensor | None, kv_heads: int,
    qk_norm: bool, factors_on_q: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`project_qkv` after its product.  q: (B, T, H·K), k, v: (B, T, G·K)"""
    q, k, v = (x.unflatten(-1, (-1, 2 * rope.shape[-1])) for x in (q, k, v))
    if s_qk is None:
        return rotate(q, rope), rotate(k, rope), v
    if not factors_on_q:
        return (*qk_on_sphere(q, k, rope, s_qk, qk_norm), v)
    on_q, on_k = s_qk.square(), torch.ones_like(s_qk)
    return (
        heads_on_sphere(q, rope, on_q, kv_heads, qk_norm),
        heads_on_sphere(k, rope, on_k, kv_heads, qk_norm),
        v,
    )


class _SwiGLU(Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, nu: Tensor) -> Tensor:
        ctx.save_for_backward(u, nu)
        return _result(F.silu(at_least_float32(nu)).mul_(u), u.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        u, nu = ctx.saved_tensors
        wide, wide_nu = at_least_float32(grad), at_least_float32(nu)
        grad_u = F.silu(wide_nu).mul_(wide)
        grad_nu = wide * u  # becomes SiLU'(ν) · g · u in place
        torch.ops.aten.silu_backward.grad_input(grad_nu, wide_nu, grad_input=grad_nu)
        return grad_u.to(u.dtype), grad_nu.to(nu.dtype)


def swiglu(u: Tensor, nu: Tensor) -> Tensor:
    """u · SiLU(ν), SiLU(ν) = ν · sigmoid(ν).  u, nu: (B, T, F) -> (B, T, F)"""
    return _SwiGLU.apply(u, nu)  # type: ignore[no-untyped-call]


def project_swiglu(h: Tensor, W: Operand) -> Tensor:
    """u · SiLU(ν) with u = h W_u and ν = h W_ν.  h: (..., D) -> (..., F)"""
    W_u, W_nu = W
    return swiglu(F.linear(h, W_u), F.linear(h, W_nu))


def linear_cross_entropy(
    h: Tensor, E_output: Tensor, s_z: Tensor | None, targets: Tensor, reduction: str
) -> Tensor:
    """Cross-entropy of the logits z = (E_output h) · s_z against targets.

    h: (B, T, D), E_output: (V, D), s_z: (V,), targets: (B, T) -> scalar: the sum over the targets
    that are not `IGNORE_INDEX`, or their mean (0 when there are none).
    """
    logits = at_least_float32(F.linear(h, E_output))
    if s_z is not None:
        logits = logits * s_z.to(logits.dtype)
    total = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    if reduction == "sum":
        return total
    return total / (targets != IGNORE_INDEX).sum().clamp_min(1)


def argmax(x: Tensor) -> Tensor:
    """The index of the largest number of each row, the first of several.  (N, V) -> (N,)"""
    return x.argmax(-1)
