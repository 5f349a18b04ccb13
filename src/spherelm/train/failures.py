"""Failures of the machine that torch reports in its own words, in one line of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.distributed import DistError

from spherelm.config import RunConfig
from spherelm.distributed.watch import HUNG
from spherelm.errors import UserError, first_line
from spherelm.free_memory import gib
from spherelm.train.memory import training_memory

NO_MEMORY = ("DefaultCPUAllocator", "Cannot allocate memory", "out of memory")
NO_PEER = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL")


class Lost(UserError):
    """Another process of the run has ended, and with it our connection to it."""

    exit_status = HUNG


@contextlib.contextmanager
def explained(run: RunConfig, world_size: int) -> Iterator[None]:
    """Memory that ran out although it seemed enough, and processes that ended, as `UserError`."""
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
