"""How much memory a training step needs on each device: an estimate by counting tensors."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.config import RunConfig
from spherelm.model.flops import count_parameters


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device at the peak of a step."""

    weights: int
    """The master weights of this device's shard."""
    gradients: int
    """Their gradients."""
    optimizer: int
    """Adam's two moments."""
    working_copy: int
    """Weights in the precision of the products, as far as they are gathered at a time."""
    activations: int
    """What blocks save for their backward pass."""
    loss: int
    """Logits of a chunk, and the gradients of the hidden state and of the output embedding."""

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.working_copy
            + self.activations
            + self.loss
        )


LOGITS_CHUNK = 4096
"""Tokens whose logits are in memory at a time where the loss is fused (CUDA)."""


def training_memory(run: RunConfig, world_size: int = 1) -> MemoryEstimate:
    """Count what one of `world_size` devices holds when the backward pass begins.

    Everything that belongs to weights is divided over the devices that shard them; activations are
    those of one micro-batch.
    """
    model, train, parallel = run.model, run.train, run.parallel
    count = count_parameters(model)
    matrices = count.total - count.factors
    shards = max(1, world_size // parallel.replicate)
    fused = train.device in ("auto", "cuda")  # bf16 products, chunked loss
    bf16 = train.precision == "bf16" or (train.precision == "auto" and fused)
    stored = 2 if train.weight_storage == "bf16" else 4
    width = 2 if bf16 else 4  # bytes of an activation

    held = stored * matrices // shards + 4 * count.factors
    share = max(1, train.batch_size * parallel.tensor // world_size)
    tokens = min(share, train.micro_batch_size or share) * model.context
    d, ways = model.d_model, parallel.tensor
    inner = (d + 2 * model.kv_heads * model.d_k + d + 3 * model.mlp_width) // ways
    per_block = 3 * d + inner
    if train.activation_checkpointing:  # each block's input, and one block computed again
        saved = model.n_layers * d + per_block
    else:
        saved = model.n_layers * per_block
    logits = (LOGITS_CHUNK if fused else tokens) * model.vocab_size * (4 + 2)
    return MemoryEstimate(
        weights=held,
        gradients=held,
        optimizer=2 * held,
        working_copy=_gathered(run, matrices, width, world_size, bf16 != (stored == 2)),
        activations=width * tokens * saved,
        loss=logits + 2 * width * tokens * d + 4 * model.vocab_size * d,
    )


def _gathered(run: RunConfig, matrices: int, width: int, world_size: int, casts: bool) -> int:
    """One device casts all matrices at once; shards are gathered two blocks at a time."""
    if world_size == 1:
        return width * matrices if casts else 0
    embeddings = (1 if run.model.tie_embeddings else 2) * run.model.vocab_size * run.model.d_model
    block = (matrices - embeddings) // run.model.n_layers // run.parallel.tensor
    return width * (embeddings + 2 * block) + 4 * block
