"""Decoding with cached keys and values: a whole prompt at once, then a token at a time.

The blocks are the model's own; only what a query attends to differs. The cache holds keys as
attention needs them, rotated and normalized; their factors are applied to q
(`spherelm.model.fold`).

Shapes: B batch, T time, H heads, G heads of k and v, K head dimension, V vocabulary, L layers,
S length of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.free_memory import require_memory
from spherelm.model.fold import FoldedTransformer
from spherelm.model.transformer import RunBlock, run_block
from spherelm.ops.interface import Operations


@dataclass(frozen=True)
class Cache:
    """Keys and values of all layers: (L, B, G, S, K) each."""

    keys: Tensor
    values: Tensor

    @property
    def batch(self) -> int:
        return self.keys.shape[1]

    @property
    def length(self) -> int:
        return self.keys.shape[3]


def new_cache(model: FoldedTransformer, batch: int, length: int) -> Cache:
    """An empty cache, filled with zeros; also extends the model's RoPE to its length."""
    c = model.config
    shape = (len(model.blocks), batch, c.kv_heads, length, c.d_k)
    model.extend_context(length)
    keys, values = (
        torch.zeros(shape, dtype=model.dtype, device=model.E_input.device) for _ in range(2)
    )
    return Cache(keys, values)


def check_fits(model: FoldedTransformer, batch: int, prompt: int, new: int) -> None:
    """Refuse prompts that do not fit in memory; the error says how much there is."""
    require_memory(
        f"a cache for {prompt:,} tokens of prompt and {new:,} new ones, {batch} times,",
        generation_bytes(model, batch, prompt, new),
        model.E_input.device,
        "shorten the prompt, lower max_new_tokens, or give fewer prompts",
    )


def generation_bytes(model: FoldedTransformer, batch: int, prompt: int, new: int) -> int:
    """Bytes of the cache, and of one block's activations at their peak while prompts are read."""
    c = model.config
    cache = 2 * len(model.blocks) * batch * c.kv_heads * (prompt + new) * c.d_k
    widest = 4 * c.d_model + 3 * c.mlp_width  # h, its update, heads; u, ν and their product
    return (cache + batch * prompt * widest) * model.dtype.itemsize


@dataclass(frozen=True, eq=False)
class _KeepKeys:
    """Causal attention over prompts that also stores keys and values in a layer's cache."""

    keys: Tensor
    values: Tensor

    def __call__(self, ops: Operations, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        length = k.shape[1]
        self.keys[:, :, :length] = k.transpose(1, 2)
        self.values[:, :, :length] = v.transpose(1, 2)
        return ops.attend(q, k, v, None, True, scale)


@dataclass(frozen=True, eq=False)
class _OverCache:
    """Attention of one token per sequence, laid out along time, over its own sequence's cache."""

    keys: Tensor
    values: Tensor
    rows: Tensor
    positions: Tensor
    mask: Tensor

    def __call__(self, ops: Operations, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        self.keys[self.rows, :, self.positions] = k[0]  # (B, G, K)
        self.values[self.rows, :, self.positions] = v[0]
        # The H/G queries that share a key head are laid out along the time dimension.
        grouped = q[0].unflatten(1, (k.shape[2], -1))  # (B, G, H/G, K)
        span = self.mask.shape[-1]
        heads = F.scaled_dot_product_attention(
            grouped,
            self.keys[:, :, :span],
            self.values[:, :, :span],
            attn_mask=self.mask,
            scale=scale,
        )
        return heads.flatten(1, 2)[None]


@torch.no_grad()
def prefill(
    model: FoldedTransformer, tokens: Tensor, cache: Cache, last: Tensor | None = None
) -> Tensor:
    """Run whole prompts and store their keys and values.

    Prompts shorter than T are padded on the right with any token; causality hides the padding, and
    `decode` overwrites its keys.

    tokens: (B, T), last: (B,) position of each prompt's last token -> logits (B, V) there, or
    (B, T, V) at all positions if `last` is not given.
    """
    attends = map(_KeepKeys, cache.keys, cache.values)
    h = model.run_blocks(model.embed(tokens), model.rope(tokens.shape[1]), attends)
    if last is not None:
        h = h[torch.arange(h.shape[0], device=h.device), last]  # (B, D)
    return model.logits(h)


@torch.no_grad()
def decode(
    model: FoldedTransformer,
    tokens: Tensor,
    positions: Tensor,
    cache: Cache,
    span: int,
    run: RunBlock = run_block,
) -> Tensor:
    """One more token for each sequence, at each sequence's own position.

    The B sequences are laid out along the time dimension: each token has its own position, and
    attends to the first `span` entries of its own sequence's cache.

    tokens: (B,), positions: (B,) < span -> logits (B, V)
    """
    rows = torch.arange(tokens.shape[0], device=tokens.device)
    rope = model.rope.table[:, positions]  # (2, B, K/2)
    reach = torch.arange(span, device=tokens.device)
    mask = (reach <= positions[:, None])[:, None, None]  # (B, 1, 1, span)
    attends = (
        _OverCache(keys, values, rows, positions, mask)
        for keys, values in zip(cache.keys, cache.values, strict=True)
    )
    h = model.run_blocks(model.embed(tokens[None]), rope, attends, run)  # (1, B, D)
    return model.logits(h[0])
