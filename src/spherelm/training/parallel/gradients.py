"""Gradients of a step over all processes: averaging, global norm, and clipping.

FSDP2 averages the gradients of the matrices. Those of the factors, which are not sharded, are
averaged here in one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from spherelm.distributed.processes import Processes
from spherelm.model.attention import Attention
from spherelm.model.mlp import MLP
from spherelm.model.sphere import local_rows
from spherelm.model.transformer import Transformer
from spherelm.ops.fp8.held import held_by


def average_factor_gradients(model: Transformer, processes: Processes) -> None:
    """Average the gradients of the one-dimensional parameters over the parts of a batch.

    For factors outside attention and MLP (alphas, gains, s_z), all processes of a tensor group
    compute the same gradient, which must count once; for those inside (s_qk, s_u, s_nu), each
    computes a different part of it.
    """
    if processes.mesh is None:
        return
    inside = {id(p) for m in model.modules() if isinstance(m, (Attention, MLP)) for p in factors(m)}
    gradients = []
    for parameter in factors(model):
        assert parameter.grad is not None
        if id(parameter) not in inside:
            parameter.grad /= processes.tensor
        gradients.append(parameter.grad)
    if not gradients:  # all factors are fixed
        return
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    flat /= processes.data_ranks
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total)


def agree_on_largest(model: Transformer, processes: Processes) -> None:
    """Take the largest numbers seen by FP8 products over all processes, so that they all continue
    with the same scales, and a checkpoint does not depend on the process that writes it."""
    if processes.mesh is None or model.ops.hold is None:
        return
    held = list(held_by(model).values())
    flat = torch.cat([h.amax for h in held])
    dist.all_reduce(flat, op=dist.ReduceOp.MAX)
    torch._foreach_copy_([h.amax.data for h in held], list(flat.view(len(held), -1).unbind()))


def factors(module: nn.Module) -> list[nn.Parameter]:
    """The trained one-dimensional parameters."""
    return [p for p in module.parameters() if p.ndim != 2 and p.requires_grad]


def squared_norm(tensors: Iterable[Tensor], processes: Processes) -> Tensor:
    """This process's share of the squared norm of weights or gradients; all shares add up to it."""
    by_copies: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        copies = replicas(tensor, processes.world_size)
        by_copies.setdefault(copies, []).append(local_rows(tensor))
    shares = [
        torch.stack(_norms(rows)).float().square().sum() / copies
        for copies, rows in by_copies.items()
    ]
    return torch.stack(shares).sum() if shares else torch.zeros((), device=processes.device)


def _norms(tensors: list[Tensor]) -> list[Tensor]:
    """The norm of each tensor, at least in float32: in bfloat16 it would have 8 bits."""
    dtype = reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
    return list(torch._foreach_norm(tensors, dtype=dtype))


def replicas(tensor: Tensor, world_size: int) -> int:
    """How many processes hold the same values of a weight or gradient."""
    if not isinstance(tensor, DTensor):
        return world_size
    count = world_size // tensor.device_mesh.size()
    for size, placement in zip(tensor.device_mesh.shape, tensor.placements, strict=True):
        if isinstance(placement, Replicate):
            count *= size
    return count


def clipping_factor(norm: Tensor, largest: float) -> Tensor:
    """The factor that reduces a global gradient norm `norm` to at most `largest`."""
    return (largest / (norm + 1e-6)).clamp(max=1.0)
