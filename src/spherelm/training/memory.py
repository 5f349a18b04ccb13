"""How much memory a training step needs on each device, estimated by counting tensors.

`check_fits` refuses a run that cannot fit before anything is allocated. The estimate may be wrong,
but a run that would fit must never be refused. So weights, gradients and moments, which are exact,
count fully, and of the rest only the share `SURE`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.free_memory import require_memory
from spherelm.model.flops import count_parameters

if TYPE_CHECKING:
    import torch

SURE = Fraction(4, 5)
"""The share of activations, copies and logits that counts as certain. Steps of the 0.5B models took
0.99 to 1.8 times the whole estimate on an H200 (docs/results/speed.md), those of eleven small
models 1.1 to 3.4 times on a CPU, where more is kept."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device at the peak of a step."""

    weights: int
    """The master weights of this device's shard."""
    gradients: int
    """The gradients of this device's shard, which stay sharded between micro-batches."""
    optimizer: int
    """Adam's two moments; with Muon, one momentum for the matrices of the blocks."""
    working_copy: int
    """Weights in the precision of the products, as many as are gathered at a time."""
    activations: int
    """What blocks save for their backward pass."""
    loss: int
    """Logits of a chunk, and the gradients of the hidden state and the output embedding."""
    batch: int
    """Tokens and targets of this device's share of a step."""

    @property
    def state(self) -> int:
        """What is held throughout the run."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        return self.state + self.working_copy + self.activations + self.loss + self.batch

    @property
    def certain(self) -> int:
        """What a step certainly needs, even if the estimate is too high."""
        return self.state + int(SURE * (self.total - self.state))


LOGITS_CHUNK = 2**28
"""With the fused loss (CUDA), the most logits in memory at a time, rounded to whole rows, at least
one (see `ops.triton.cross_entropy`)."""


def training_memory(run: RunConfig, world_size: int = 1) -> MemoryEstimate:
    """Count what each of `world_size` devices, or of the fewest that the run needs if that is more,
    holds when the backward pass begins.

    Weights, gradients and moments are divided by the number of shards; activations are those of one
    micro-batch.
    """
    model, train, parallel = run.model, run.train, run.parallel
    world_size = max(world_size, parallel.tensor * parallel.replicate)
    count = count_parameters(model)
    matrices = count.total - count.factors
    shards = world_size // parallel.replicate
    fused = train.device.partition(":")[0] in ("auto", "cuda")  # bf16 products, chunked loss
    bf16 = train.precision in ("bf16", "fp8") or (train.precision == "auto" and fused)
    stored = 2 if train.weight_storage == "bf16" else 4
    width = 2 if bf16 else 4  # bytes of an activation

    held = stored * matrices // shards + 4 * count.factors
    moments = 2 * held
    if run.optim.algorithm == "muon":  # one momentum
        moments -= stored * (count.attention + count.mlp) // shards
    share = max(1, train.batch_size * parallel.tensor // world_size)
    tokens = min(share, train.micro_batch_size or share) * model.context
    d, ways = model.d_model, parallel.tensor
    inner = (d + 2 * model.kv_heads * model.d_k + d + 3 * model.mlp_width) // ways
    per_block = 3 * d + inner
    if train.activation_checkpointing:  # each block's input, and one block recomputed
        saved = model.n_layers * d + per_block
    else:
        saved = model.n_layers * per_block
    if fused:  # the gradient overwrites the logits
        logits = width * max(1, min(tokens, LOGITS_CHUNK // model.vocab_size)) * model.vocab_size
    else:
        logits = (4 + 2) * tokens * model.vocab_size
    return MemoryEstimate(
        weights=held,
        gradients=held,
        optimizer=moments,
        working_copy=_gathered(run, matrices, width, world_size, bf16 != (stored == 2)),
        activations=width * tokens * saved,
        loss=logits + 2 * width * tokens * d + 4 * model.vocab_size * d,
        batch=2 * 8 * share * model.context,
    )


REMEDY = (
    "use a smaller model, context or train.micro_batch_size, "
    "train.activation_checkpointing, or more devices"
)


def check_fits(
    run: RunConfig, device: torch.device, world_size: int = 1, remedy: str = REMEDY
) -> None:
    """Refuse a run if there is not enough memory for its steps, or for building its model.

    Every process builds the whole model in main memory, and moves it to its device before it keeps
    only its shard, so both must have room for the whole model.
    """
    import torch

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    host = torch.device("cpu")
    whole = 4 * count_parameters(run.model).total
    step = training_memory(override(run, {"train.device": device.type}), world_size).certain
    sharing = 1 if device.type == "cuda" else local
    require_memory("a step of this run", max(whole, step), device, remedy, sharing)
    require_memory("making the weights of this model", whole, host, "use a smaller one", local)


def _gathered(run: RunConfig, matrices: int, width: int, world_size: int, casts: bool) -> int:
    """Bytes of cast or gathered weights. A single device casts all matrices at once; shards are
    gathered two blocks at a time, while the full gradients of one block are being reduced."""
    if world_size == 1:
        return width * matrices if casts else 0
    embeddings = (1 if run.model.tie_embeddings else 2) * run.model.vocab_size * run.model.d_model
    block = (matrices - embeddings) // run.model.n_layers // run.parallel.tensor
    return width * (embeddings + 2 * block) + 4 * block
