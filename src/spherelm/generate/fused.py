"""A decode step of one sequence in five kernels a block, for CUDA.

With one token a product reads its matrix once and computes almost nothing, so what is left to win
is the number of kernels: each costs about two microseconds however little it does. What a block
does between its products is short enough to be repeated by every program of the next product:

    1  h ← update of the block before; q, k, v = h W_qkv         a program for a few rows
    2  RoPE, Norm, s_qk²; attention over a part of the cache     a program for a head and a part
    3  the parts joined; y = heads W_o                           a program for a few rows
    4  h ← update by y; u · SiLU(ν) of h W_u, h W_ν              a program for a few rows
    5  y = ... W_oMLP                                            a program for a few rows

The stream h is held in float32, in two buffers by turns: one is read by all programs while the
first of them writes the other.

Where the device can (Hopper and later), a kernel is started before the one it follows has ended
(programmatic dependent launch): it asks for its weights at once, and waits, in `gdc_wait`, only
before it reads what the kernels before it have written. So weights are on their way all the time.

Shapes as in `folded`; P parts of the cache.
"""

# Triton functions have no types a checker knows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spherelm.generate.folded import Cache, FoldedModel
from spherelm.kernels.reference import NORM_EPS, RMS_NORM_EPS

_NORM_EPS = tl.constexpr(NORM_EPS)
_RMS_EPS = tl.constexpr(RMS_NORM_EPS)
_SHAPES = {
    "qkv": (8192, 2),
    "o": (16384, 8),
    "gated": (8192, 1),
    "o_mlp": (16384, 8),
    "logits": (16384, 4),
}
"""Of each product: numbers of its matrix that a program holds at once, and its warps."""
_MOST_NUMBERS = 32768
_ATTENTION_WARPS = 4
_POSITIONS = 128
"""Entries of the cache that a program looks at together."""
_PARTS = 4
"""Parts of the cache at most."""


@triton.jit
def _let_next_start_and_wait():
    """The next kernel may start; this one goes on when those before it are done."""
    tl.extra.cuda.gdc_launch_dependents()
    tl.extra.cuda.gdc_wait()


@triton.jit
def _unit(x):
    return x / tl.maximum(tl.sqrt(tl.sum(x * x)), _NORM_EPS)


@triton.jit
def _stream(
    token_ptr,
    E_ptr,
    h_ptr,
    y_ptr,
    vector,
    D,
    cols,
    mask,
    FIRST: tl.constexpr,
    NGPT: tl.constexpr,
):
    """The stream after the update, and what the next product reads of it: (D,) each.

    nGPT: Norm(h + α (Norm(y) − h)), vector = α.  GPT: h + y and its RMSNorm, vector = the gain.
    The first block has no update before it: its stream is the token's embedding.
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
    token_ptr,
    E_ptr,
    h_ptr,
    y_ptr,
    vector_ptr,
    W_ptr,
    h_out_ptr,
    out_ptr,
    n_rows,
    D,
    FIRST: tl.constexpr,
    NGPT: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The update of the stream, and a product with it; GATED: u · SiLU(ν) of W_u over W_ν."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = cols < D
    tile = (rows < n_rows)[:, None] & mask[None, :]
    here = W_ptr + rows[:, None].to(tl.int64) * D + cols[None, :]
    W = tl.load(here, mask=tile, other=0.0)  # asked for first: the longest way
    if GATED:
        below = W_ptr + (rows + n_rows)[:, None].to(tl.int64) * D + cols[None, :]
        W_nu = tl.load(below, mask=tile, other=0.0)
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
    x_ptr,
    W_ptr,
    out_ptr,
    n_rows,
    D,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """out = W x.  x: (D,), W: (n_rows, D)"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    tile = (rows < n_rows)[:, None] & (cols < D)[None, :]
    W = tl.load(W_ptr + rows[:, None].to(tl.int64) * D + cols[None, :], mask=tile, other=0.0)
    if EARLY:
        _let_next_start_and_wait()
    x = tl.load(x_ptr + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + rows, tl.sum(W.to(tl.float32) * x[None, :], axis=1), mask=rows < n_rows)


@triton.jit
def _rotated(x_ptr, cos, sin, half, i, mask, NORMALIZE: tl.constexpr):
    """A head of q or k, turned and normalized, as its two halves."""
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
    qkv_ptr,
    rope_ptr,
    factors_ptr,
    position_ptr,
    keys_ptr,
    values_ptr,
    best_ptr,
    total_ptr,
    parts_ptr,
    rope_stride,
    cache_stride,
    span,
    scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D_K: tl.constexpr,
    NORMALIZE: tl.constexpr,
    SCALED: tl.constexpr,
    PARTS: tl.constexpr,
    POSITIONS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
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
        # Where nothing has been seen yet there is no scale to change, and -inf − -inf is NaN.
        reference = tl.where(highest == -float("inf"), 0.0, highest)
        shrink = tl.exp(best - reference)
        weight = tl.exp(score - reference)
        total = total * shrink + tl.sum(weight)
        sum1 = sum1 * shrink + tl.sum(weight[:, None] * v1.to(tl.float32), axis=0)
        sum2 = sum2 * shrink + tl.sum(weight[:, None] * v2.to(tl.float32), axis=0)
        best = highest
        t += POSITIONS
        within = mask & (tl.max(t) < (part + 1) * size)  # the last round has nothing to fetch
        k1, k2 = _entries(keys_ptr, t, position, i, within, D_K)
        v1, v2 = _entries(values_ptr, t, position, i, within, D_K)

    slot = part * HEADS + head
    tl.store(best_ptr + slot, best)
    tl.store(total_ptr + slot, total)
    tl.store(parts_ptr + slot * D_K + i, sum1, mask=mask)
    tl.store(parts_ptr + slot * D_K + half + i, sum2, mask=mask)


@triton.jit
def join_kernel(
    best_ptr,
    total_ptr,
    parts_ptr,
    W_ptr,
    out_ptr,
    n_rows,
    D,
    HEADS: tl.constexpr,
    D_K: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """out = W x with x the heads' attention, joined from its parts.  W: (n_rows, D), D = H·K"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = cols < D
    tile = (rows < n_rows)[:, None] & mask[None, :]
    W = tl.load(W_ptr + rows[:, None].to(tl.int64) * D + cols[None, :], mask=tile, other=0.0)
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


def applies(model: FoldedModel, batch: int) -> bool:
    """Whether the kernels do what this model needs: one sequence, and the paper's update."""
    paper = model.config.arch == "gpt" or model.config.update == "lerp"
    wide = model.dtype != torch.float64 and model.config.mlp_width <= _MOST_NUMBERS
    return batch == 1 and paper and wide


class FusedDecode:
    """`FoldedModel.decode` for one sequence; its buffers are its own."""

    def __init__(self, model: FoldedModel) -> None:
        c = model.config
        self.model = model
        heads = c.n_heads * c.d_k

        def buffer(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=model.device)

        self._h = [buffer(c.d_model), buffer(c.d_model)]
        self._y, self._gated = buffer(c.d_model), buffer(c.mlp_width)
        self._qkv = buffer(heads + 2 * c.kv_heads * c.d_k)
        self._best, self._total = buffer(_PARTS, c.n_heads), buffer(_PARTS, c.n_heads)
        self._parts = buffer(_PARTS, heads)
        self._logits = buffer(1, c.vocab_size)
        self._nothing = buffer(c.d_model)
        self._can_start_early = model.device.type == "cuda" and torch.cuda.get_device_capability(
            model.device
        ) >= (9, 0)

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, cache: Cache, span: int) -> Tensor:
        """tokens: (1,), positions: (1,) < span -> logits (1, V), overwritten by the next call"""
        model = self.model
        # What each product needs for the update before it: an α of nGPT, or the gain of GPT's norm.
        for i, layer in enumerate(model.layers):
            before = self._nothing if i == 0 else model.layers[i - 1].alpha_M
            self._project(
                "qkv", tokens, layer.gain_attn, before, layer.W_qkv, self._qkv, first=i == 0
            )
            parts = self._attend(i, layer.q_factors, positions, cache, span)
            self._join(parts, layer.W_o)
            self._project("gated", tokens, layer.gain_mlp, layer.alpha_A, layer.W_u_nu, self._gated)
            self._product(layer.W_o_mlp)
        last = model.layers[-1].alpha_M
        self._project("logits", tokens, model.final_gain, last, model.E_output, self._logits)
        return self._logits

    def _project(
        self,
        product: str,
        tokens: Tensor,
        gain: Tensor | None,
        alpha: Tensor | None,
        W: Tensor,
        out: Tensor,
        first: bool = False,
    ) -> None:
        gated = product == "gated"
        n_rows, D = W.shape[0] // (2 if gated else 1), W.shape[1]
        rows, block, warps = _tile(product, D, 2 if gated else 1)
        before, after = self._h
        project_kernel[(triton.cdiv(n_rows, rows),)](
            tokens,
            self.model.E_input,
            before,
            self._y,
            alpha if gain is None else gain,
            W,
            after,
            out,
            n_rows,
            D,
            FIRST=first,
            NGPT=self.model.config.arch == "ngpt",
            GATED=gated,
            ROWS=rows,
            BLOCK=block,
            num_warps=warps,
            **self._start(early=not first),
        )
        self._h.reverse()

    def _attend(
        self, layer: int, factors: Tensor | None, positions: Tensor, cache: Cache, span: int
    ) -> int:
        c = self.model.config
        parts = max(1, min(_PARTS, span // _POSITIONS))
        keys, values = cache.keys[layer, 0], cache.values[layer, 0]  # (G, S, K)
        rope = self.model.rope
        attention_kernel[(c.n_heads, parts)](
            self._qkv,
            rope,
            self._nothing if factors is None else factors,
            positions,
            keys,
            values,
            self._best,
            self._total,
            self._parts,
            rope.stride(0),
            keys.stride(0),
            span,
            c.softmax_scale,
            HEADS=c.n_heads,
            KV_HEADS=c.kv_heads,
            D_K=c.d_k,
            NORMALIZE=c.arch == "ngpt" and c.qk_norm,
            SCALED=factors is not None,
            PARTS=parts,
            POSITIONS=_POSITIONS,
            BLOCK=triton.next_power_of_2(c.d_k // 2),
            num_warps=_ATTENTION_WARPS,
            **self._start(),
        )
        return parts

    def _join(self, parts: int, W_o: Tensor) -> None:
        c = self.model.config
        rows, block, warps = _tile("o", W_o.shape[1])
        join_kernel[(triton.cdiv(W_o.shape[0], rows),)](
            self._best,
            self._total,
            self._parts,
            W_o,
            self._y,
            W_o.shape[0],
            W_o.shape[1],
            HEADS=c.n_heads,
            D_K=c.d_k,
            PARTS=parts,
            ROWS=rows,
            BLOCK=block,
            num_warps=warps,
            **self._start(),
        )

    def _product(self, W: Tensor) -> None:
        rows, block, warps = _tile("o_mlp", W.shape[1])
        product_kernel[(triton.cdiv(W.shape[0], rows),)](
            self._gated,
            W,
            self._y,
            W.shape[0],
            W.shape[1],
            ROWS=rows,
            BLOCK=block,
            num_warps=warps,
            **self._start(),
        )

    def _start(self, early: bool = True) -> dict[str, bool]:
        """How a kernel is started: the first of a step after everything, the others early."""
        if not self._can_start_early:
            return {"EARLY": False}
        return {"EARLY": True, "launch_pdl": early}


def _tile(product: str, D: int, matrices: int = 1) -> tuple[int, int, int]:
    """Rows a program takes, the power of two that holds a row, and the warps for them."""
    numbers, warps = _SHAPES[product]
    block = triton.next_power_of_2(D)
    warps = min(16, max(warps, block // 1024))  # a thread holds 32 numbers of a row at most
    return max(1, numbers // (block * matrices)), block, warps
