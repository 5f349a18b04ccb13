"""Eight-bit products of a whole model: matrices rounded once a step, and scales for the next one.

The input of W_oMLP is u · SiLU(ν) with u = s_u (hᵀw), ν = s_ν·sqrt(D) (hᵀw'), where h, w and w' are
unit vectors: no number of it is above s_u s_ν·sqrt(D). That of W_o is a mean of rows of v, whose
numbers hᵀw are at most 1, as are those of h. So no number in the forward pass of an nGPT can be too
large for its format, and no scale of it depends on what was seen before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spherelm.model.sphere import local_rows

if TYPE_CHECKING:
    from spherelm.model.attention import Attention
    from spherelm.model.mlp import MLP


def round_matrices(block: nn.Module, _arguments: Any = None) -> None:
    """Round the matrices of a block for its products, unless they are known to be as they were.

    It hangs on the block's call, outside of what is compiled, and after FSDP2 has gathered weights.
    """
    from torch.distributed.fsdp import FSDPModule

    gathered = isinstance(block, FSDPModule)  # it lets go of weights between the parts of a batch
    part: Attention | MLP
    for part in (block.attention, block.mlp):  # type: ignore[assignment]
        if gathered or not part.held.keep:
            *going_in, coming_out = (local_rows(W) for W in part.unscaled(torch.float32))
            part.held.fill((going_in, [coming_out]), part.ops.kernels)


@contextmanager
def scaled_pass(blocks: list[Any], tokens: int) -> Iterator[None]:
    """A forward pass of the blocks over `tokens` tokens, with the scales that are due.

    What a pass without gradients sees, as in an evaluation, does not decide how training goes on.
    """
    held = [part.held for block in blocks for part in (block.attention, block.mlp)]
    if not held[0].keep:
        _advance(blocks, held, tokens)
    yield
    if not torch.is_grad_enabled():
        torch._foreach_zero_([h.amax.data for h in held])


@torch.no_grad()
def _advance(blocks: list[Any], held: list[Any], tokens: int) -> None:
    from spherelm.ops.fp8.held import E4M3, LARGEST, advance, power_of_two

    bounds = None
    mlps: list[MLP] = [block.mlp for block in blocks]
    if mlps[0].s_u is not None and mlps[0].s_nu is not None:
        bounds = _largest_factors([m.s_u for m in mlps]) * _largest_factors([m.s_nu for m in mlps])
        bounds = bounds.amax(-1) * math.sqrt(mlps[0].config.d_model)
        bounds = power_of_two(LARGEST[E4M3] / bounds)
    advance(held, tokens, bounds)


def _largest_factors(scales: list[Any]) -> Tensor:
    """|factors| of each block: (L, n), or (L, 1)"""
    config = scales[0].config
    stored = torch.stack([scale.stored for scale in scales])
    return stored.abs() * abs(config.init / config.scale)


def keep_rounded(model: nn.Module, keep: bool) -> None:
    """Whether matrices are known to be what they were in the last pass: true from the second part
    of a step's batch on. Rounded matrices and scales are then kept."""
    from spherelm.ops.fp8.held import held_by

    for held in held_by(model).values():
        held.keep = keep
