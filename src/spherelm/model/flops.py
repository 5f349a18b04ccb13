"""What a model costs: parameters by kind and FLOPs per token, from its config alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from spherelm.errors import UserError
from spherelm.model.config import ModelConfig
from spherelm.model.transformer import Transformer


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by kind; a kind that the model does not have is 0."""

    embeddings: int
    attention: int
    mlp: int
    factors: int
    """Learned vectors: gains of RMSNorm in GPT, alphas and scales in nGPT."""

    @property
    def total(self) -> int:
        return self.embeddings + self.attention + self.mlp + self.factors


def count_parameters(config: ModelConfig) -> ParameterCount:
    """Count the parameters of models of one and of two layers, of which the others are copies."""
    one, two = (_count(dataclasses.replace(config, n_layers=n)) for n in (1, 2))
    kinds = dataclasses.asdict(one)
    block = {kind: number - kinds[kind] for kind, number in dataclasses.asdict(two).items()}
    return ParameterCount(**{k: n + (config.n_layers - 1) * block[k] for k, n in kinds.items()})


def _count(config: ModelConfig) -> ParameterCount:
    """Count the parameters of a model built on the meta device, which allocates nothing."""
    try:
        with torch.device("meta"):
            model = Transformer(config)
    except (RuntimeError, TypeError):  # torch counts bytes in 63 bits
        raise UserError(
            "a matrix of this model, or its table of positions, would have more than 8 EiB; choose "
            "smaller sizes"
        ) from None
    counts = {"embeddings": 0, "attention": 0, "mlp": 0, "factors": 0}
    for name, p in model.named_parameters():
        if p.ndim != 2:
            kind = "factors"
        elif name.startswith("E_"):
            kind = "embeddings"
        else:
            kind = name.split(".")[2]  # blocks.3.attention.W_q
        counts[kind] += p.numel()
    return ParameterCount(**counts)


def flops_per_token(config: ModelConfig, context: int | None = None) -> float:
    """FLOPs of forward and backward for one token of a sequence, matrix products only.

    6 per weight that multiplies (all matrices but the input embedding's look-up), and
    6 · T · d_model · L for attention: q·k and the sum over v, each 2 · T/2 · d_model forward by
    causality and twice that backward.
    """
    count = count_parameters(config)
    output_embedding = config.vocab_size * config.d_model
    length = config.context if context is None else context
    attention = 6 * length * config.d_model * config.n_layers
    return 6 * (count.attention + count.mlp + output_embedding) + attention
