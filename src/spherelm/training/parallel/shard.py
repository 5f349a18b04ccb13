"""Parallelism, applied to the model from outside.

First tensor parallelism divides the blocks; then come, in this order, activation checkpointing,
compilation and sharding (FSDP2). The model's files know nothing of it, and parameters keep their
names.

Matrices are sharded by rows, so no vector is ever split and the retraction needs no communication.
Factors (one-dimensional, a thousandth of the parameters) are not sharded and always in float32;
their gradients are averaged in one message (`gradients`).
"""

from __future__ import annotations

import warnings
from functools import partial

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils.checkpoint import checkpoint

from spherelm.config import TrainConfig
from spherelm.distributed.processes import Processes
from spherelm.model.sphere import check_rows_whole, matrices
from spherelm.model.transformer import Transformer
from spherelm.ops.device import uses_bf16
from spherelm.training.parallel.tensor import divide_blocks

# A block returns a (B, T, D) view of (B·T, D), which is fine: nothing changes it in place.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def parallelize(model: Transformer, train: TrainConfig, processes: Processes) -> None:
    """Change `model` in place for the processes of the run. A single process, even one of
    `torchrun`, keeps its matrices unsharded, as CUDA graphs need them."""
    mesh = processes.mesh if processes.world_size > 1 else None
    if mesh is not None and processes.tensor > 1:
        divide_blocks(model, mesh["tensor"])
    if train.activation_checkpointing:
        for block in model.blocks:  # blocks use no random numbers, so no state to preserve
            block.forward = partial(
                checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
            )
    if train.compile:
        compile_blocks(model)
    if mesh is not None:
        bf16 = uses_bf16(train.precision, processes.device)
        shard_rows(model, mesh["replicate", "shard"], bf16)
        check_rows_whole(matrices(model))


def compile_blocks(model: Transformer) -> None:
    """Compile every block's forward in place. The blocks share the compiled code, so compile time
    does not grow with depth.

    Only the forward, not the whole call, so that hooks, such as FSDP2's gathering of weights, stay
    outside the graph.
    """
    from spherelm.ops.add_in_place import ADD_IN_PLACE  # loads the compiler: a second or more

    for block in model.blocks:
        block.forward = torch.compile(
            block.forward, options={"post_grad_custom_post_pass": ADD_IN_PLACE}
        )


def shard_rows(model: Transformer, mesh: DeviceMesh, bf16: bool) -> None:
    """Shard the rows of all matrices with FSDP2; master weights and reductions are in float32."""
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    factors = {p for p in model.parameters() if p.ndim != 2}
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, ignored_params=factors)
    fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=factors)
    register_fsdp_forward_method(model, "loss")
