"""Parallelism, applied to the model from outside, in this order: activation checkpointing, compile.

The model's files know nothing of any of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from spherelm.config import TrainConfig
from spherelm.model.transformer import Transformer


def parallelize(model: Transformer, train: TrainConfig) -> None:
    """Change `model` in place; names of parameters stay what they are."""
    if train.activation_checkpointing:
        recompute_in_backward(model)
    if train.compile:
        compile_blocks(model)


def recompute_in_backward(model: Transformer) -> None:
    """Keep only each block's input; the backward pass computes the block again."""
    for block in model.blocks:
        forward: Callable[..., Any] = block.forward
        block.forward = partial(checkpoint, forward, use_reentrant=False)  # type: ignore[method-assign]


def compile_blocks(model: Transformer) -> None:
    """Compile each block, not the whole model: depth does not multiply the wait."""
    for block in model.blocks:
        block.compile()


def sum_floats(values: list[float]) -> list[float]:
    """The element-wise sum over all ranks; with one process, the values themselves."""
    if not torch.distributed.is_initialized():
        return values
    total = torch.tensor(values, dtype=torch.float64)
    torch.distributed.all_reduce(total)
    return total.tolist()
