"""q, k and v from one packed projection: RoPE, head norms and s_qk, in one pass each way.

One product makes [q | k | v] for every token. nGPT needs q̂ = Norm(RoPE(q)), k̂ = Norm(RoPE(k)) and
their scores (s_qk q̂)ᵀ(s_qk k̂) = (s_qk² q̂)ᵀ k̂. So q takes both factors, and k̂, which attention and
the backward both need, overwrites k. q̂ cannot be recovered from s_qk² q̂ if a factor is zero, so the
raw q is kept as well: H·K numbers per token more than GPT, whose q and k are rotated in place.

With g the gradient of s_qk² q̂, R the rotation of the token's position and ℓ = ‖q‖:

    ds_qk = 2 s_qk Σ_tokens g q̂        dq = Rᵀ (s_qk² g − q̂ (q̂ᵀ s_qk² g)) / ℓ        (k likewise)

Each program keeps its sum over tokens in registers: no atomics, so it is reproducible to the bit.

Shapes: N = B·T tokens, H heads, G heads of k and v, K head dimension; a packed row is
(H + 2G)·K. Kernels work on pairs (x_i, x_{i+K/2}) as two tiles of K/2 columns. A table of angles
has a row for each position, or for each token if tokens have their own positions.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from spherelm.ops.reference import NORM_EPS, first_derivative
from spherelm.ops.triton.tiles import load_pair, power_of_two, programs, sum_rows

_EPS = tl.constexpr(NORM_EPS)
_TILE, _BACKWARD_TILE = 1024, 512
"""Numbers of one half of the pairs that a program holds at a time."""


@triton.jit
def _turn(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _inverse_length(first, second):
    square = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
    return 1 / tl.maximum(tl.sqrt(square), _EPS)


@triton.jit
def qk_kernel(
    packed_ptr, table_ptr, s_qk_ptr, q_ptr, inverse_ptr, tokens, T, table_stride,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, SPHERE: tl.constexpr, NORM: tl.constexpr,
    ROWS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A row is one head of q or k of one token; all but nGPT's q is written in place."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = row // (H + G), row % (H + G)
    is_q = (head < H)[:, None]
    column = tl.arange(0, HALF)[None, :]
    mask = (token < tokens)[:, None] & (column < K // 2)

    here = packed_ptr + (token * ((H + 2 * G) * K) + head * K)[:, None] + column
    first, second = load_pair(here, K // 2, mask, False)
    angle = table_ptr + (token % T * (K // 2))[:, None] + column
    cos, sin = load_pair(angle, table_stride, mask, False)
    first, second = _turn(first, second, cos, sin)

    if NORM:
        inverse = _inverse_length(first, second)
        first, second = first * inverse[:, None], second * inverse[:, None]
        of_key = token * G + head - H
        tl.store(inverse_ptr + of_key, inverse, mask=(token < tokens) & (head >= H))
    if SPHERE:
        q_mask = mask & is_q
        factor = s_qk_ptr + (head // (H // G) * K)[:, None] + column
        s_first, s_second = load_pair(factor, K // 2, q_mask, False)
        q_here = q_ptr + (token * (H * K) + head * K)[:, None] + column
        tl.store(q_here, first * s_first * s_first, mask=q_mask)
        tl.store(q_here + K // 2, second * s_second * s_second, mask=q_mask)
        mask = mask & (head >= H)[:, None]
    tl.store(here, first, mask=mask)
    tl.store(here + K // 2, second, mask=mask)


@triton.jit
def gradient_of_part(
    is_q, is_v, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    q_stride_b, q_stride_t, q_stride_h, k_stride_b, k_stride_t, k_stride_h,
    v_stride_b, v_stride_t, v_stride_h, H: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """The address of the gradient of q, k or v, as if from head 0 of a packed row, and strides."""
    if is_q:
        grad_ptr = grad_q_ptr
        stride_b, stride_t, stride_h = q_stride_b, q_stride_t, q_stride_h
    elif is_v:
        grad_ptr = grad_v_ptr - (H + G) * v_stride_h
        stride_b, stride_t, stride_h = v_stride_b, v_stride_t, v_stride_h
    else:
        grad_ptr = grad_k_ptr - H * k_stride_h
        stride_b, stride_t, stride_h = k_stride_b, k_stride_t, k_stride_h
    return grad_ptr, stride_b, stride_t, stride_h


@triton.jit
def head_gradients(
    packed_ptr, table_ptr, inverse_ptr, grad_ptr, stride_b, stride_t, stride_h,
    square_first, square_second, sum_first, sum_second, start, slot, head, column, mask,
    is_q, is_v, tokens, T, table_rows, table_stride,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, SPHERE: tl.constexpr, NORM: tl.constexpr,
    EVEN: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The gradients of projected heads, all of q, or of k, or of v; adds to the sums Σ g q̂.

    slot, head: (rows,), the token of each row, counted from `start`, and its head; column:
    (1, HALF), mask: (rows, HALF), square: s_qk². WHOLE: all tokens of a tile are in one sequence,
    which a single division then finds.
    """
    token = (start + slot).to(tl.int64)
    if WHOLE:
        sequence, position = start // T, start % T + slot
        turn = start % table_rows + slot
    else:
        sequence, position = (start + slot) // T, (start + slot) % T
        turn = (start + slot) % table_rows
    at = sequence.to(tl.int64) * stride_b + position.to(tl.int64) * stride_t + head * stride_h
    at = grad_ptr + at[:, None] + column
    g_first, g_second = load_pair(at, K // 2, mask, EVEN)
    if not is_v:
        angle = table_ptr + (turn.to(tl.int64) * (K // 2))[:, None] + column
        cos, sin = load_pair(angle, table_stride, mask, EVEN)
        if SPHERE:
            # q is kept as projected, k as the unit vector k̂.
            here = packed_ptr + (token * ((H + 2 * G) * K) + head * K)[:, None] + column
            first, second = load_pair(here, K // 2, mask, EVEN)
            inverse = tl.full(token.shape, 1.0, tl.float32)
            if is_q:
                first, second = _turn(first, second, cos, sin)
                if NORM:
                    inverse = _inverse_length(first, second)
                    first, second = first * inverse[:, None], second * inverse[:, None]
                sum_first += g_first * first
                sum_second += g_second * second
                g_first *= square_first
                g_second *= square_second
            elif NORM:
                stored = inverse_ptr + token * G + head - H
                inverse = tl.load(stored, mask=token < tokens, other=1.0)
            if NORM:
                dot = tl.sum(g_first * first, axis=1) + tl.sum(g_second * second, axis=1)
                g_first = (g_first - first * dot[:, None]) * inverse[:, None]
                g_second = (g_second - second * dot[:, None]) * inverse[:, None]
        g_first, g_second = _turn(g_first, g_second, cos, -sin)
    return g_first, g_second, sum_first, sum_second


@triton.jit
def qk_backward_kernel(
    packed_ptr, table_ptr, s_qk_ptr, inverse_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    out_ptr, partial_ptr, tokens, T, table_rows, table_stride,
    q_stride_b, q_stride_t, q_stride_h, k_stride_b, k_stride_t, k_stride_h,
    v_stride_b, v_stride_t, v_stride_h,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, SPHERE: tl.constexpr, NORM: tl.constexpr,
    WHOLE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A row is one head of one token; a program keeps to HEADS heads of q, or k, or v, and walks
    over tokens."""
    first_head = tl.program_id(1) * HEADS
    is_q, is_v = first_head < H, first_head >= H + G
    grad_ptr, stride_b, stride_t, stride_h = gradient_of_part(
        is_q, is_v, grad_q_ptr, grad_k_ptr, grad_v_ptr,
        q_stride_b, q_stride_t, q_stride_h, k_stride_b, k_stride_t, k_stride_h,
        v_stride_b, v_stride_t, v_stride_h, H, G,
    )  # fmt: skip

    row = tl.arange(0, TOKENS * HEADS)
    slot, head = row // HEADS, first_head + row % HEADS
    column = tl.arange(0, HALF)[None, :]
    inside = (column < K // 2) & (slot >= 0)[:, None]
    s_first, s_second = 1.0, 1.0
    if SPHERE:
        factor = s_qk_ptr + (head // (H // G) * K)[:, None] + column
        s_first, s_second = load_pair(factor, K // 2, inside & is_q, False)
    sum_first = tl.zeros((TOKENS * HEADS, HALF), tl.float32)
    sum_second = tl.zeros((TOKENS * HEADS, HALF), tl.float32)

    for start in range(tl.program_id(0) * TOKENS, tokens, tl.num_programs(0) * TOKENS):
        token = (start + slot).to(tl.int64)
        mask = (token < tokens)[:, None] & inside
        g_first, g_second, sum_first, sum_second = head_gradients(
            packed_ptr, table_ptr, inverse_ptr, grad_ptr, stride_b, stride_t, stride_h,
            s_first * s_first, s_second * s_second, sum_first, sum_second, start, slot, head,
            column, mask, is_q, is_v, tokens, T, table_rows, table_stride, H, G, K, SPHERE, NORM,
            False, WHOLE,
        )  # fmt: skip
        here = out_ptr + (token * ((H + 2 * G) * K) + head * K)[:, None] + column
        tl.store(here, g_first, mask=mask)
        tl.store(here + K // 2, g_second, mask=mask)

    if SPHERE:  # noqa: SIM102 (known when compiling; is_q is not)
        if is_q:
            at = (tl.program_id(0) * TOKENS + slot) * (H * K) + head * K
            at = partial_ptr + at[:, None] + column
            tl.store(at, sum_first, mask=inside)
            tl.store(at + K // 2, sum_second, mask=inside)


def _run_forward(
    packed: Tensor, table: Tensor, s_qk: Tensor, q: Tensor, inverse: Tensor,
    heads: int, kv_heads: int, sphere: bool, norm: bool,
) -> None:  # fmt: skip
    tokens, T, K = packed.shape[0], table.shape[1], 2 * table.shape[2]
    half = power_of_two(K // 2)
    rows = max(1, _TILE // half)
    qk_kernel[(triton.cdiv(tokens * (heads + kv_heads), rows),)](
        packed, table, s_qk, q, inverse, tokens, T, table.stride(0),
        H=heads, G=kv_heads, K=K, SPHERE=sphere, NORM=norm, ROWS=rows, HALF=half, num_warps=4,
    )  # fmt: skip


@torch.library.custom_op("spherelm::rotate_qk_", mutates_args=("packed",))
def rotate_qk_(packed: Tensor, table: Tensor, heads: int, kv_heads: int) -> None:
    """RoPE of q and k in place: GPT.  packed: (N, (H+2G)·K), table: (2, T, K/2)"""
    _run_forward(packed, table, table, packed, table, heads, kv_heads, sphere=False, norm=False)


@torch.library.custom_op("spherelm::qk_on_sphere_", mutates_args=("packed",))
def qk_on_sphere_(
    packed: Tensor, table: Tensor, s_qk: Tensor, heads: int, kv_heads: int, qk_norm: bool
) -> tuple[Tensor, Tensor]:
    """s_qk² Norm(RoPE(q)): (N, H·K), and 1/‖k‖: (N, G); k becomes Norm(RoPE(k)) in place."""
    tokens, K = packed.shape[0], 2 * table.shape[2]
    q = packed.new_empty(tokens, heads * K)
    inverse = packed.new_empty(tokens, kv_heads, dtype=torch.float32)
    _run_forward(packed, table, s_qk, q, inverse, heads, kv_heads, sphere=True, norm=qk_norm)
    return q, inverse


@qk_on_sphere_.register_fake
def _(packed, table, s_qk, heads, kv_heads, qk_norm):
    tokens, K = packed.shape[0], 2 * table.shape[2]
    inverse = packed.new_empty(tokens, kv_heads, dtype=torch.float32)
    return packed.new_empty(tokens, heads * K), inverse


def _last_stride_1(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


@torch.library.custom_op("spherelm::qkv_backward", mutates_args=())
def qkv_backward(
    packed: Tensor | None,
    table: Tensor,
    s_qk: Tensor | None,
    inverse: Tensor | None,
    grad_q: Tensor,
    grad_k: Tensor,
    grad_v: Tensor,
    qk_norm: bool,
) -> tuple[Tensor, Tensor]:
    """The gradient of the packed projection, and Σ_tokens g q̂, float32 (empty for GPT).

    grad_q: (B, T, H, K), grad_k, grad_v: (B, T, G, K), of any strides
    """
    batch, T, heads, K = grad_q.shape
    kv_heads = grad_k.shape[2]
    grad_q, grad_k, grad_v = map(_last_stride_1, (grad_q, grad_k, grad_v))
    sphere = s_qk is not None
    tokens, all_heads = batch * T, heads + 2 * kv_heads
    half = power_of_two(K // 2)
    heads_per_tile = math.gcd(heads, kv_heads, 16)  # a tile is all of q, or of k, or of v
    tokens_per_tile = max(1, _BACKWARD_TILE // (heads_per_tile * half))
    count = programs(triton.cdiv(tokens, tokens_per_tile), grad_q.device, per_multiprocessor=12)

    out = grad_q.new_empty(tokens, all_heads * K)
    slots = count * tokens_per_tile if sphere else 0
    partial = grad_q.new_empty(slots, heads, K, dtype=torch.float32)
    qk_backward_kernel[(count, all_heads // heads_per_tile)](
        out if packed is None else packed, table, table if s_qk is None else s_qk,
        table if inverse is None else inverse, grad_q, grad_k, grad_v, out, partial,
        tokens, T, table.shape[1], table.stride(0), *grad_q.stride()[:3], *grad_k.stride()[:3],
        *grad_v.stride()[:3], H=heads, G=kv_heads, K=K, SPHERE=sphere, NORM=qk_norm and sphere,
        WHOLE=T % tokens_per_tile == 0, TOKENS=tokens_per_tile, HEADS=heads_per_tile, HALF=half,
        num_warps=2,
    )  # fmt: skip
    if not sphere:
        return out, partial.view(0)
    dot = sum_rows(partial.view(slots, heads * K))
    if heads != kv_heads:  # a factor is shared by the heads that share a key
        dot = dot.view(kv_heads, heads // kv_heads, K).sum(1).flatten()
    return out, dot


@qkv_backward.register_fake
def _(packed, table, s_qk, inverse, grad_q, grad_k, grad_v, qk_norm):
    batch, T, heads, K = grad_q.shape
    kv_heads = grad_k.shape[2]
    out = grad_q.new_empty(batch * T, (heads + 2 * kv_heads) * K)
    return out, grad_q.new_empty(0 if s_qk is None else kv_heads * K, dtype=torch.float32)


class _ProjectQKV(Function):
    """The packed product and the kernels around it; h: (B, T, D), W: ((H+2G)·K, D)"""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, W: Tensor, table: Tensor, s_qk: Tensor | None,
        heads: int, kv_heads: int, qk_norm: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        batch, T = h.shape[:2]
        packed = h.flatten(0, 1) @ W.t()
        if s_qk is None:
            rotate_qk_(packed, table, heads, kv_heads)
            ctx.save_for_backward(h, W, table, None, None, None)
        else:
            rotated_q, inverse = qk_on_sphere_(packed, table, s_qk, heads, kv_heads, qk_norm)
            ctx.save_for_backward(h, W, table, s_qk, packed, inverse)
        ctx.qk_norm = qk_norm
        per_head = packed.view(batch, T, heads + 2 * kv_heads, -1)
        q, k, v = per_head.split((heads, kv_heads, kv_heads), dim=2)
        return (q if s_qk is None else rotated_q.view(batch, T, heads, -1)), k, v

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad_q: Tensor, grad_k: Tensor, grad_v: Tensor) -> Any:
        h, W, table, s_qk, packed, inverse = ctx.saved_tensors
        grad_packed, dot = qkv_backward(
            packed, table, s_qk, inverse, grad_q, grad_k, grad_v, ctx.qk_norm
        )
        grad_s_qk = None if s_qk is None else (2 * s_qk * dot).to(s_qk.dtype)
        grad_h = (grad_packed @ W).view(h.shape)
        grad_W = grad_packed.t() @ h.flatten(0, 1)
        return grad_h, grad_W, None, grad_s_qk, None, None, None


def project_qkv(
    h: Tensor, W: Tensor, table: Tensor, s_qk: Tensor | None, kv_heads: int, qk_norm: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """q: (B, T, H, K), k and v: (B, T, G, K), ready for attention, from the packed matrix W.

    table: (2, T, K/2), or (2, B·T, K/2)
    """
    heads = W.shape[0] // (2 * table.shape[2]) - 2 * kv_heads
    factors = None if s_qk is None else s_qk.contiguous()
    return _ProjectQKV.apply(h, W, table, factors, heads, kv_heads, qk_norm)
