"""The gradient of the packed projection [q | k | v] as an FP8 operand, in both orders.

The arithmetic, and the forward, are those of `qk`; a program has one head of many tokens, so that
it can write them transposed.

Shapes: N = B·T tokens, H heads, G heads of k and v, K head dimension.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.ops.eight_bits import LARGEST, padded
from spherelm.ops.triton.fp8_cast import (
    as_bytes,
    largest_of_eights,
    note_largest,
    store_both,
)
from spherelm.ops.triton.qk import gradient_of_part, head_gradients
from spherelm.ops.triton.tiles import load_pair, power_of_two, sum_rows

_TILE, _WALK, _STAGES, _WARPS = 1024, 8, 1, 4
"""Numbers of one half of the pairs that a program holds at a time, and tiles that it walks over."""


@triton.jit
def qkv_backward_kernel_8(
    packed_ptr, table_ptr, s_qk_ptr, inverse_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    out_ptr, turned_ptr, partial_ptr, scale_ptr, amax_ptr, tokens, T, table_rows, table_stride,
    turned_rows,
    q_stride_b, q_stride_t, q_stride_h, k_stride_b, k_stride_t, k_stride_h,
    v_stride_b, v_stride_t, v_stride_h,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, SPHERE: tl.constexpr, NORM: tl.constexpr,
    LARGEST: tl.constexpr, EVEN: tl.constexpr, WHOLE: tl.constexpr, TOKENS: tl.constexpr,
    HALF: tl.constexpr, WALK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A program walks over WALK tiles of tokens of one head of q, k or v."""
    walk, head = tl.program_id(0) // (H + 2 * G), tl.program_id(0) % (H + 2 * G)
    is_q, is_v = head < H, head >= H + G
    grad_ptr, stride_b, stride_t, stride_h = gradient_of_part(
        is_q, is_v, grad_q_ptr, grad_k_ptr, grad_v_ptr,
        q_stride_b, q_stride_t, q_stride_h, k_stride_b, k_stride_t, k_stride_h,
        v_stride_b, v_stride_t, v_stride_h, H, G,
    )  # fmt: skip

    column = tl.arange(0, HALF)
    inside = column < K // 2
    scale = tl.load(scale_ptr)
    s_first = tl.full((HALF,), 1.0, tl.float32)
    s_second = s_first
    if SPHERE:
        factor = s_qk_ptr + head // (H // G) * K + column
        s_first, s_second = load_pair(factor, K // 2, inside & is_q, False)
    sum_first = tl.zeros((TOKENS, HALF), tl.float32)
    sum_second = tl.zeros((TOKENS, HALF), tl.float32)
    largest = tl.zeros((TOKENS, HALF // 8), tl.float32)
    width = (H + 2 * G) * K
    out_ptr += head * K
    turned_ptr += tl.cast(head * K, tl.int64) * turned_rows
    for step in tl.range(0, WALK, num_stages=STAGES):
        start, slot = (walk * WALK + step) * TOKENS, tl.arange(0, TOKENS)
        token = start + slot
        mask = (token < tokens)[:, None] & inside[None, :]
        g_first, g_second, sum_first, sum_second = head_gradients(
            packed_ptr, table_ptr, inverse_ptr, grad_ptr, stride_b, stride_t, stride_h,
            (s_first * s_first)[None, :], (s_second * s_second)[None, :], sum_first, sum_second,
            start, slot, head, column[None, :], mask, is_q, is_v, tokens, T, table_rows,
            table_stride, H, G, K, SPHERE, NORM, EVEN, WHOLE,
        )  # fmt: skip
        g_first *= scale
        g_second *= scale
        either = tl.maximum(tl.abs(g_first), tl.abs(g_second))
        largest = tl.maximum(largest, largest_of_eights(either))
        store_both(
            out_ptr, turned_ptr, g_first, token, column, tokens, K // 2, width, turned_rows,
            turned_rows, LARGEST, EVEN,
        )  # fmt: skip
        store_both(
            out_ptr + K // 2, turned_ptr + tl.cast(K // 2, tl.int64) * turned_rows, g_second,
            token, column, tokens, K // 2, width, turned_rows, turned_rows, LARGEST, EVEN,
        )  # fmt: skip
    if SPHERE:  # noqa: SIM102 (known when compiling; is_q is not)
        if is_q:
            sums = partial_ptr + (tl.cast(walk, tl.int64) * H + head) * K + column
            tl.store(sums, tl.sum(sum_first, axis=0), mask=inside)
            tl.store(sums + K // 2, tl.sum(sum_second, axis=0), mask=inside)
    note_largest(amax_ptr, largest / scale)


def qkv_backward(
    packed: Tensor | None,
    table: Tensor,
    s_qk: Tensor | None,
    inverse: Tensor | None,
    grads: tuple[Tensor, Tensor, Tensor],
    qk_norm: bool,
    scale: Tensor,
    amax: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the packed projection in FP8, also transposed, and Σ_tokens g q̂, float32.

    grads: of q, (B, T, H, K), and of k and v, (B, T, G, K), of any strides but the last
    -> (N, (H+2G)·K), ((H+2G)·K, N'), (G·K,), empty for GPT
    """
    grad_q, grad_k, grad_v = (g if g.stride(-1) == 1 else g.contiguous() for g in grads)
    batch, T, heads, K = grad_q.shape
    kv_heads, device = grad_k.shape[2], grad_q.device
    sphere, tokens, all_heads = s_qk is not None, batch * T, heads + 2 * kv_heads
    half = max(8, power_of_two(K // 2))
    per_tile = max(1, _TILE // half)
    out = torch.empty(tokens, all_heads * K, dtype=dtype, device=device)
    turned = torch.empty(all_heads * K, padded(tokens), dtype=dtype, device=device)
    walk = min(_WALK, triton.cdiv(turned.shape[1], per_tile))
    walks = triton.cdiv(turned.shape[1], per_tile * walk)
    partial = torch.empty(walks if sphere else 0, heads * K, dtype=torch.float32, device=device)
    qkv_backward_kernel_8[(walks * all_heads,)](
        grad_q if packed is None else packed, table, table if s_qk is None else s_qk,
        table if inverse is None else inverse, grad_q, grad_k, grad_v, as_bytes(out),
        as_bytes(turned), partial, scale, amax, tokens, T, table.shape[1], table.stride(0),
        turned.shape[1],
        *grad_q.stride()[:3], *grad_k.stride()[:3], *grad_v.stride()[:3],
        H=heads, G=kv_heads, K=K, SPHERE=sphere, NORM=qk_norm and sphere, LARGEST=LARGEST[dtype],
        EVEN=tokens % (per_tile * walk) == 0 and 2 * half == K, WHOLE=T % per_tile == 0,
        TOKENS=per_tile, HALF=half, WALK=walk, STAGES=_STAGES, num_warps=_WARPS,
    )  # fmt: skip
    if not sphere:
        return out, turned, partial.view(0)
    dot = sum_rows(partial)
    if heads != kv_heads:  # a factor is shared by the heads that share a key
        dot = dot.view(kv_heads, heads // kv_heads, K).sum(1).flatten()
    return out, turned, dot
