"""A loss that is not finite: what to tell the user, and where to look."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.model.transformer import Transformer
from spherelm.train.parallel.gradients import squared_norm


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
    """The error for a step that went wrong, with the norms of weights and gradients by layer.

    All processes must ask, for each knows the norms of its own rows alone.
    """
    number, what = (grad_norm, "norm of the gradient") if math.isfinite(loss) else (loss, "loss")
    rescue = f"last good checkpoint: {last_good}" if last_good else "no checkpoint was written"
    norms = "; ".join(
        f"{name}: weights {weights:.3g}, gradients {gradients:.3g}"
        for name, weights, gradients in layer_norms(model, processes)
    )
    error = Diverged(
        f"the {what} became {number} at step {step}; {rescue}; norms by layer: {norms}"
    )
    error.everywhere = True
    return error


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
