"""FP8 products of a whole model: matrices rounded once per step, and scales for the next step.

On the sphere the forward pass needs no observed scales, since every input of a product is bounded.
h is a unit vector. The input of W_oMLP is u · SiLU(ν) with u = s_u (hᵀw), ν = s_ν·sqrt(D) (hᵀw'),
where h, w and w' are unit vectors: at most s_u s_ν·sqrt(D). The input of W_o is a mean of rows of
v, whose elements hᵀw are at most 1. So nothing in an nGPT's forward pass can overflow its format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spherelm.model.sphere import local_rows

if TYPE_CHECKING:
    from spherelm.model.attention import Attention
    from spherelm.model.mlp import MLP


def round_matrices(block: nn.Module, _arguments: Any = None) -> None:
    """Round the matrices of a block for its products, unless they are known not to have changed.

    Runs as a hook of the block: outside of what is compiled, and after FSDP2 has gathered weights.
    """
    from torch.distributed.fsdp import FSDPModule

    gathered = isinstance(block, FSDPModule)  # frees its weights between micro-batches
    for part in parts_of([block]):
        if not part.held.filled and (gathered or not part.held.keep):
            part.held.fill(_products(part), part.ops.kernels)


def parts_of(blocks: Sequence[Any]) -> list[Any]:
    """Attention and MLP of each block."""
    return [part for block in blocks for part in (block.attention, block.mlp)]


@torch.no_grad()
def _products(part: Attention | MLP) -> tuple[list[Tensor], list[Tensor]]:
    """The matrices of a part's two products: those applied to h, and the output matrix."""
    *going_in, coming_out = (local_rows(W) for W in part.unscaled(torch.float32))
    return going_in, [coming_out]


@contextmanager
def scaled_pass(blocks: list[Any], tokens: int) -> Iterator[None]:
    """A forward pass of the blocks over `tokens` tokens, with up-to-date scales.

    Maxima seen without gradients, as in evaluation, are discarded: they must not affect training.
    """
    held = [part.held for part in parts_of(blocks)]
    if not held[0].keep:
        _advance(blocks, held, tokens)
    yield
    for h in held:
        h.filled = False
    if not torch.is_grad_enabled():
        torch._foreach_zero_([h.amax.data for h in held])


@torch.no_grad()
def begin_step(blocks: list[Any], tokens: int, places: list[Tensor] | None = None) -> list[Tensor]:
    """What `scaled_pass` does before the first pass of a step, for passes that do not do it again.

    A captured pass reads its scales from where they were at the capture: from `places`. Returns
    where they are.
    """
    from spherelm.ops.fp8.held import scales_in

    parts = parts_of(blocks)
    held = [part.held for part in parts]
    _advance(blocks, held, tokens)
    for part in parts:
        if not part.held.filled:
            part.held.fill(_products(part), part.ops.kernels)
        part.held.filled = False
    return scales_in(held, places)


@torch.no_grad()
def _advance(blocks: list[Any], held: list[Any], tokens: int) -> None:
    """Take the next scales; round all matrices at once if this process has them, and kernels."""
    from torch.distributed.fsdp import FSDPModule

    from spherelm.ops.eight_bits import E4M3, LARGEST
    from spherelm.ops.fp8.held import (
        advance,
        fill_at_once,
        matrix_scales,
        power_of_two,
    )

    at_once = blocks[0].ops.kernels and not isinstance(blocks[0], FSDPModule)
    products = [_products(part) for part in parts_of(blocks)] if at_once else []
    bounds = None
    mlps: list[MLP] = [block.mlp for block in blocks]
    if mlps[0].s_u is not None and mlps[0].s_nu is not None:
        bounds = _largest_factors([m.s_u for m in mlps]) * _largest_factors([m.s_nu for m in mlps])
        bounds = bounds.amax(-1) * math.sqrt(mlps[0].config.d_model)
        bounds = power_of_two(LARGEST[E4M3] / bounds)
    advance(
        held, tokens, bounds, None if held[0].sphere or not at_once else matrix_scales(products)
    )
    if at_once:
        for h, of_part in zip(held, products, strict=True):
            h.room(of_part)
            h.filled = True
        fill_at_once(held, products)


def _largest_factors(scales: list[Any]) -> Tensor:
    """|factors| of each block: (L, n), or (L, 1)"""
    config = scales[0].config
    stored = torch.stack([scale.stored for scale in scales])
    return stored.abs() * abs(config.init / config.scale)


def keep_rounded(blocks: Sequence[Any], keep: bool) -> None:
    """Say whether matrices are unchanged since the last pass, as from the second micro-batch of a
    step on; rounded matrices and scales are then kept."""
    for part in parts_of(blocks):
        part.held.keep = keep
