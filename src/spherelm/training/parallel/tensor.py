"""Tensor parallelism: each process of a group computes its share of the heads and of the MLP.

All matrices of a block are lists of row vectors, (n, D), and are divided by rows: W_q, W_k, W_v and
W_o by heads, W_u, W_nu and W_o_mlp by units of the MLP. A row is never split, so one process has
all of every vector. Attention and MLP then need one sum over the group in each direction:

    forward   y = Σ_ranks x_rank @ W_o_rank
    backward  ∂h = Σ_ranks ∂h_rank, through each rank's share of q, k, v (or u, ν)

This is applied from outside: a module's forward runs on the local rows of its parameters.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

from spherelm.errors import UserError
from spherelm.model.attention import Attention
from spherelm.model.mlp import MLP
from spherelm.model.scale import Scale
from spherelm.model.sphere import local_rows
from spherelm.model.transformer import Transformer


def divide_blocks(model: Transformer, group: DeviceMesh) -> None:
    """Divide the rows of every block's matrices over the processes of `group`."""
    config, ways = model.config, group.size()
    for name, number in (
        ("n_heads", config.n_heads),
        ("n_kv_heads", config.kv_heads),
        ("d_mlp", config.mlp_width),
    ):
        if number % ways:
            raise UserError(f"parallel.tensor = {ways} must divide model.{name} = {number}")
    for module in model.modules():
        if isinstance(module, (Attention, MLP)):
            _divide(module, group)


def _divide(module: nn.Module, group: DeviceMesh) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        if parameter.ndim == 2:
            rows = distribute_tensor(parameter.detach(), group, [Shard(0)], src_data_rank=None)
            setattr(module, name, nn.Parameter(rows))
    for child in module.children():
        if isinstance(child, Scale):
            _read_share(child, group)
    forward, ranks = module.forward, group.get_group()

    def shared_forward(h: Tensor, *rest: Any) -> Tensor:
        whole = dict(module._parameters)
        local: Any = {n: local_rows(p) for n, p in module.named_parameters(recurse=False)}
        h = _SumGradients.apply(h, ranks)  # type: ignore[no-untyped-call]
        try:  # with the local rows in place of the module's parameters, for this call
            module._parameters.update(local)
            y = forward(h, *rest)
        finally:
            module._parameters.update(whole)
        return _Sum.apply(y, ranks)  # type: ignore[no-untyped-call]

    module.forward = shared_forward


def _read_share(scale: Scale, group: DeviceMesh) -> None:
    """Factors are not sharded; let the forward pass read those of its own rows."""
    forward, share, rank = scale.forward, scale.n // group.size(), group.get_local_rank()
    scale.forward = lambda: forward()[rank * share : (rank + 1) * share]  # type: ignore[method-assign]


class _Sum(torch.autograd.Function):
    """Forward: the sum over the group. Backward: identity, every rank gets the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _SumGradients(torch.autograd.Function):
    """Forward: identity. Backward: the sum over the group of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None
