"""Errors that end a run, as one line: a non-finite loss, too little memory, a lost process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.distributed import DistError

from spherelm.config import RunConfig
from spherelm.distributed.processes import Processes
from spherelm.distributed.watch import HUNG
from spherelm.errors import UserError, first_line
from spherelm.free_memory import gib
from spherelm.model.transformer import Transformer
from spherelm.training.memory import training_memory
from spherelm.training.parallel.gradients import squared_norm

NO_MEMORY = ("DefaultCPUAllocator", "Cannot allocate memory", "out of memory")
NO_PEER = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL")


class Lost(UserError):
    """Another process of the run has ended, and with it our connection to it."""

    exit_status = HUNG


@contextlib.contextmanager
def explained(run: RunConfig, world_size: int) -> Iterator[None]:
    """Turn errors of torch into `UserError`: memory that ran out after all, and lost processes."""
    try:
        yield
    except (RuntimeError, DistError) as error:
        text, first = str(error), first_line(error)
        if isinstance(error, torch.OutOfMemoryError) or any(sign in text for sign in NO_MEMORY):
            estimate = training_memory(run, world_size).total
            raise UserError(
                f"memory ran out (a step was estimated at {gib(estimate)}): {first}; use a smaller "
                "train.micro_batch_size, or train.activation_checkpointing"
            ) from error
        if world_size > 1 and (
            isinstance(error, DistError) or any(sign in text for sign in NO_PEER)
        ):
            raise Lost(
                f"lost another process of this run: {first}; see which one ended and why, then go "
                "on with --resume auto"
            ) from error
        raise


class Diverged(UserError):
    """The loss or the gradient became NaN or infinite; the run stopped and kept its checkpoints."""

    exit_status = 3


def diverged(
    model: Transformer,
    processes: Processes,
    step: int,
    loss: float,
    grad_norm: float,
    last_good: Path | None,
) -> Diverged:
    """The error for a step that diverged, with the norms of weights and gradients by layer.

    To be called by all processes, since each knows only the norms of its own rows.
    """
    number, what = (grad_norm, "norm of the gradient") if math.isfinite(loss) else (loss, "loss")
    rescue = f"last good checkpoint: {last_good}" if last_good else "no checkpoint was written"
    norms = "; ".join(
        f"{name}: weights {weights:.3g}, gradients {gradients:.3g}"
        for name, weights, gradients in layer_norms(model, processes)
    )
    said = f"the {what} became {number} at step {step}; {rescue}; norms by layer: {norms}"
    return Diverged(said, everywhere=True)


@torch.no_grad()
def layer_norms(model: Transformer, processes: Processes) -> list[tuple[str, float, float]]:
    """(name, norm of weights, norm of gradients) of the embeddings and of each block."""
    parts = {"embeddings": [p for n, p in model.named_parameters() if not n.startswith("blocks.")]}
    for index, block in enumerate(model.blocks):
        parts[f"block {index}"] = list(block.parameters())
    shares = []
    for parameters in parts.values():
        gradients = [p.grad for p in parameters if p.grad is not None]
        shares += [squared_norm(parameters, processes), squared_norm(gradients, processes)]
    norms = processes.sum_(torch.stack(shares)).sqrt().tolist()
    return list(zip(parts, norms[0::2], norms[1::2], strict=True))
