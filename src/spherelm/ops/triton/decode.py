"""The Triton kernels of `fused`: what each of the five of a block computes.

On Hopper and later, a kernel starts before the previous one has ended (programmatic dependent
launch, EARLY): it loads its weights at once, and waits, in `gdc_wait`, only before it reads what
earlier kernels wrote. So the memory is never idle.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import triton
import triton.language as tl

from spherelm.ops.reference import NORM_EPS, RMS_NORM_EPS

_NORM_EPS = tl.constexpr(NORM_EPS)
_RMS_EPS = tl.constexpr(RMS_NORM_EPS)


@triton.jit
def _let_next_start_and_wait():
    """Let the next kernel start; continue when the earlier ones are done."""
    tl.extra.cuda.gdc_launch_dependents()
    tl.extra.cuda.gdc_wait()


@triton.jit
def _rows_of(W_ptr, first, rows, cols, n_rows, D):
    """Rows `first + rows` of a matrix; 0 where `rows` is n_rows or more."""
    mask = (rows < n_rows)[:, None] & (cols < D)[None, :]
    here = W_ptr + (first + rows)[:, None].to(tl.int64) * D + cols[None, :]
    return tl.load(here, mask=mask, other=0.0)


@triton.jit
def _unit(x):
    return x / tl.maximum(tl.sqrt(tl.sum(x * x)), _NORM_EPS)


@triton.jit
def _stream(
    token_ptr, E_ptr, h_ptr, y_ptr, vector, D, cols, mask,
    FIRST: tl.constexpr, NGPT: tl.constexpr,
):  # fmt: skip
    """The hidden state after the update, and what the next product reads of it: (D,) each.

    nGPT: Norm(h + α (Norm(y) − h)), vector = α.  GPT: h + y and its RMSNorm, vector = the gain.
    The first block has no update before it: its hidden state is the token's embedding.
    """
    if FIRST:
        token = tl.load(token_ptr)
        h = tl.load(E_ptr + token * D + cols, mask=mask, other=0.0).to(tl.float32)
    else:
        h = tl.load(h_ptr + cols, mask=mask, other=0.0)
        y = tl.load(y_ptr + cols, mask=mask, other=0.0)
        h = _unit(h + vector * (_unit(y) - h)) if NGPT else h + y
    read = h
    if not NGPT:
        read = h * tl.rsqrt(tl.sum(h * h) / D + _RMS_EPS) * vector
    return h, read


@triton.jit
def project_kernel(
    token_ptr, E_ptr, h_ptr, y_ptr, vector_ptr, W_ptr, h_out_ptr, out_ptr, n_rows, D,
    FIRST: tl.constexpr, NGPT: tl.constexpr, GATED: tl.constexpr, ROWS: tl.constexpr, BLOCK:
    tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The update of h, and a product with it; GATED: u · SiLU(ν), with W_u and W_ν stacked in W."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = cols < D
    W = _rows_of(W_ptr, 0, rows, cols, n_rows, D)  # first, since it takes longest
    if GATED:
        W_nu = _rows_of(W_ptr, n_rows, rows, cols, n_rows, D)
    vector = tl.load(vector_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    if EARLY:
        _let_next_start_and_wait()
    h, read = _stream(token_ptr, E_ptr, h_ptr, y_ptr, vector, D, cols, mask, FIRST, NGPT)
    if tl.program_id(0) == 0:
        tl.store(h_out_ptr + cols, h, mask=mask)
    result = tl.sum(W.to(tl.float32) * read[None, :], axis=1)
    if GATED:
        nu = tl.sum(W_nu.to(tl.float32) * read[None, :], axis=1)
        result = result * nu * tl.sigmoid(nu)
    tl.store(out_ptr + rows, result, mask=rows < n_rows)


@triton.jit
def product_kernel(
    x_ptr, W_ptr, out_ptr, n_rows, D,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = W x.  x: (D,), W: (n_rows, D)"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    W = _rows_of(W_ptr, 0, rows, cols, n_rows, D)
    if EARLY:
        _let_next_start_and_wait()
    x = tl.load(x_ptr + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + rows, tl.sum(W.to(tl.float32) * x[None, :], axis=1), mask=rows < n_rows)


@triton.jit
def _rotated(x_ptr, cos, sin, half, i, mask, NORMALIZE: tl.constexpr):
    """A head of q or k, rotated and normalized, as its two halves."""
    a = tl.load(x_ptr + i, mask=mask, other=0.0)
    b = tl.load(x_ptr + half + i, mask=mask, other=0.0)
    first, second = a * cos - b * sin, b * cos + a * sin
    if NORMALIZE:
        length = tl.maximum(tl.sqrt(tl.sum(first * first + second * second)), _NORM_EPS)
        first, second = first / length, second / length
    return first, second


@triton.jit
def _entries(cache_ptr, t, position, i, mask, D_K: tl.constexpr):
    """Entries of the cache before `position`, as their two halves; 0 elsewhere."""
    here = cache_ptr + t[:, None] * D_K + i[None, :]
    seen = (t < position)[:, None] & mask[None, :]
    return (
        tl.load(here, mask=seen, other=0.0),
        tl.load(here + D_K // 2, mask=seen, other=0.0),
    )


@triton.jit
def attention_kernel(
    qkv_ptr, rope_ptr, factors_ptr, position_ptr, keys_ptr, values_ptr, best_ptr, total_ptr,
    parts_ptr, rope_stride, cache_stride, span, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D_K: tl.constexpr, NORMALIZE: tl.constexpr,
    SCALED: tl.constexpr, PARTS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """One head's attention over one part of the cache: the largest score, the sum of exponentials,
    and the sum of values; the first part also counts the new token, and writes it to the cache.
    """
    head, part = tl.program_id(0), tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    half: tl.constexpr = D_K // 2
    i = tl.arange(0, BLOCK)
    mask = i < half
    position = tl.load(position_ptr)
    cos = tl.load(rope_ptr + position * half + i, mask=mask, other=0.0)
    sin = tl.load(rope_ptr + rope_stride + position * half + i, mask=mask, other=0.0)
    factor1 = tl.zeros([BLOCK], tl.float32) + scale
    factor2 = tl.zeros([BLOCK], tl.float32) + scale
    if SCALED:
        factor1 *= tl.load(factors_ptr + head * D_K + i, mask=mask, other=0.0)
        factor2 *= tl.load(factors_ptr + head * D_K + half + i, mask=mask, other=0.0)
    keys_ptr += kv_head.to(tl.int64) * cache_stride
    values_ptr += kv_head.to(tl.int64) * cache_stride
    size = tl.cdiv(tl.cdiv(span, PARTS), POSITIONS) * POSITIONS
    t = part * size + tl.arange(0, POSITIONS)
    k1, k2 = _entries(keys_ptr, t, position, i, mask, D_K)
    v1, v2 = _entries(values_ptr, t, position, i, mask, D_K)

    if EARLY:
        _let_next_start_and_wait()
    q1, q2 = _rotated(qkv_ptr + head * D_K, cos, sin, half, i, mask, NORMALIZE)
    q1 *= factor1
    q2 *= factor2
    best = tl.full([], -float("inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    sum1 = tl.zeros([BLOCK], tl.float32)
    sum2 = tl.zeros([BLOCK], tl.float32)
    if part == 0:
        k_ptr = qkv_ptr + (HEADS + kv_head) * D_K
        v_ptr = qkv_ptr + (HEADS + KV_HEADS + kv_head) * D_K
        new1, new2 = _rotated(k_ptr, cos, sin, half, i, mask, NORMALIZE)
        sum1 += tl.load(v_ptr + i, mask=mask, other=0.0)
        sum2 += tl.load(v_ptr + half + i, mask=mask, other=0.0)
        best = tl.sum(q1 * new1 + q2 * new2)
        total = tl.full([], 1.0, tl.float32)
        if head % (HEADS // KV_HEADS) == 0:
            new = position * D_K + i
            tl.store(keys_ptr + new, new1, mask=mask)
            tl.store(keys_ptr + new + half, new2, mask=mask)
            tl.store(values_ptr + new, sum1, mask=mask)
            tl.store(values_ptr + new + half, sum2, mask=mask)

    for _ in range(0, size, POSITIONS):
        score = tl.sum(k1.to(tl.float32) * q1[None, :] + k2.to(tl.float32) * q2[None, :], axis=1)
        score = tl.where(t < position, score, -float("inf"))
        highest = tl.maximum(best, tl.max(score))
        # -inf − -inf would be NaN while no key has been seen.
        reference = tl.where(highest == -float("inf"), 0.0, highest)
        shrink = tl.exp(best - reference)
        weight = tl.exp(score - reference)
        total = total * shrink + tl.sum(weight)
        sum1 = sum1 * shrink + tl.sum(weight[:, None] * v1.to(tl.float32), axis=0)
        sum2 = sum2 * shrink + tl.sum(weight[:, None] * v2.to(tl.float32), axis=0)
        best = highest
        t += POSITIONS
        within = mask & (tl.max(t) < (part + 1) * size)  # nothing to prefetch in the last round
        k1, k2 = _entries(keys_ptr, t, position, i, within, D_K)
        v1, v2 = _entries(values_ptr, t, position, i, within, D_K)

    slot = part * HEADS + head
    tl.store(best_ptr + slot, best)
    tl.store(total_ptr + slot, total)
    tl.store(parts_ptr + slot * D_K + i, sum1, mask=mask)
    tl.store(parts_ptr + slot * D_K + half + i, sum2, mask=mask)


@triton.jit
def join_kernel(
    best_ptr, total_ptr, parts_ptr, W_ptr, out_ptr, n_rows, D,
    HEADS: tl.constexpr, D_K: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, BLOCK:
    tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = W x with x the heads' attention, joined from its parts.  W: (n_rows, D), D = H·K"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = cols < D
    W = _rows_of(W_ptr, 0, rows, cols, n_rows, D)
    if EARLY:
        _let_next_start_and_wait()
    head = cols // D_K
    highest = tl.load(best_ptr + head, mask=mask, other=0.0)  # the first part has the new token
    for part in tl.static_range(1, PARTS):
        highest = tl.maximum(highest, tl.load(best_ptr + part * HEADS + head, mask=mask, other=0.0))
    x = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        slot = part * HEADS + head
        weight = tl.exp(tl.load(best_ptr + slot, mask=mask, other=0.0) - highest)
        total += weight * tl.load(total_ptr + slot, mask=mask, other=1.0)
        x += weight * tl.load(parts_ptr + part * D + cols, mask=mask, other=0.0)
    x = x / total
    tl.store(out_ptr + rows, tl.sum(W.to(tl.float32) * x[None, :], axis=1), mask=rows < n_rows)
