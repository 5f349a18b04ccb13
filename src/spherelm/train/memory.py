"""How much memory a training step needs on one device: an estimate by counting tensors."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.config import RunConfig
from spherelm.model.flops import count_parameters


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device at the peak of a step."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    loss: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.loss


def training_memory(run: RunConfig) -> MemoryEstimate:
    """Count what one device holds when the backward pass begins.

    Weights and gradients in their storage dtype, two float32 moments, a bfloat16 copy of the
    matrices where products are in bfloat16, the tensors each block saves for its backward pass, and
    the logits.
    """
    model, train = run.model, run.train
    parameters = count_parameters(model).total
    bf16_products = train.precision == "bf16" or (
        train.precision == "auto" and train.device in ("auto", "cuda")
    )
    stored = 2 if train.weight_storage == "bf16" else 4
    working_copy = 2 * parameters if bf16_products and stored == 4 else 0

    width = 2 if bf16_products else 4  # bytes of an activation
    sequences = train.micro_batch_size or train.batch_size
    tokens = sequences * model.context
    d, d_kv, f = model.d_model, model.kv_heads * model.d_k, model.mlp_width
    if train.activation_checkpointing:  # each block's input, and one block recomputed
        per_token = model.n_layers * d + _saved_by_block(d, d_kv, f)
    else:
        per_token = model.n_layers * _saved_by_block(d, d_kv, f)
    logits_and_gradient = 2 * 4 * tokens * model.vocab_size
    return MemoryEstimate(
        weights=stored * parameters + working_copy,
        gradients=stored * parameters,
        optimizer=2 * stored * parameters,
        activations=width * tokens * per_token,
        loss=logits_and_gradient,
    )


def _saved_by_block(d: int, d_kv: int, f: int) -> int:
    """Values per token a block saves: h and its normed twin for each half, q, k, v, the heads'
    output, and u, nu and their gated product."""
    return 4 * d + (2 * d + 2 * d_kv) + 3 * f
