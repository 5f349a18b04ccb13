"""Loss of a model on a fixed set of sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from spherelm.data.loader import Batch
from spherelm.model.transformer import IGNORE_INDEX, Transformer


@dataclass(frozen=True)
class Evaluation:
    """Cross-entropy per token in nats, over `tokens` targets."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite where that is too large for a float."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    def bits_per_byte(self, bytes_per_token: float) -> float:
        """The loss in bits for each byte of text, which does not depend on the tokenizer."""
        return self.loss / math.log(2) / bytes_per_token


@torch.no_grad()
def evaluate(
    model: Transformer,
    batches: Iterable[Batch],
    sum_over_ranks: Callable[[list[float]], list[float]] = list,
) -> Evaluation:
    """The mean loss over all targets of `batches`; ranks that hold parts of them add theirs."""
    loss_sum, tokens = 0.0, 0.0
    training = model.training
    model.eval()
    for batch in batches:
        loss_sum += model.loss(batch.tokens, batch.targets, batch.documents, reduction="sum").item()
        tokens += int((batch.targets != IGNORE_INDEX).sum())
    model.train(training)
    loss_sum, tokens = sum_over_ranks([loss_sum, tokens])
    return Evaluation(loss=loss_sum / max(1.0, tokens), tokens=int(tokens))
