"""How a model fares: what is measured of it now and then, and the error when it diverges."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.model.block import NGPTBlock
from spherelm.model.sphere import largest_norm_deviation
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


@torch.no_grad()
def sphere_metrics(
    model: Transformer, gather: Callable[[float], list[float]] = lambda mine: [mine]
) -> dict[str, Any]:
    """Mean of every alpha and scale per layer, and how far any row is from unit norm (nGPT)."""
    if model.s_z is None:
        return {}
    means: dict[str, list[float]] = {}
    for block in model.blocks:
        assert isinstance(block, NGPTBlock)
        alpha_A, alpha_M = block.eigen_learning_rates()
        factors = {"alpha_attn": alpha_A, "alpha_mlp": alpha_M}
        for owner, name in ((block.attention, "s_qk"), (block.mlp, "s_u"), (block.mlp, "s_nu")):
            factors[name] = getattr(owner, name)()
        for name, values in factors.items():
            means.setdefault(name, []).append(round(float(values.mean()), 6))
    return {
        **means,
        "s_z": round(float(model.s_z().mean()), 6),
        "largest_norm_deviation": max(gather(largest_norm_deviation(model))),
    }
