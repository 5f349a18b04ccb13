"""Loss, perplexity and bits per byte of a model, on batches of tokens and on any text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from spherelm.data.loader import Batch
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.free_memory import require_memory
from spherelm.model.transformer import Transformer
from spherelm.ops.names import IGNORE_INDEX


@dataclass(frozen=True)
class Evaluation:
    """Cross-entropy per token in nats, over `tokens` targets that cover `text_bytes` bytes."""

    loss: float
    tokens: int
    text_bytes: float | None = None
    """None if the text of the tokens is unknown."""

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite if that is too large for a float."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float | None:
        """The loss in bits per byte of text, which is comparable between tokenizers."""
        if not self.text_bytes:
            return None
        return self.loss * self.tokens / math.log(2) / self.text_bytes

    def numbers(self) -> dict[str, float | None]:
        """The numbers to report, by name."""
        names = ("loss", "perplexity", "bits_per_byte", "tokens")
        return {name: getattr(self, name) for name in names}


def summed_loss(model: Transformer, batch: Batch) -> Tensor:
    """The loss of a batch, summed over its targets."""
    return model.loss(
        batch.tokens,
        batch.targets,
        batch.documents,
        reduction="sum",
        position_ids=batch.position_ids,
    )


def check_fits(model: Transformer, tokens: Tensor) -> None:
    """Refuse a batch whose logits and MLP activations do not fit in memory."""
    c, cuda = model.config, tokens.device.type == "cuda"
    width = 2 if torch.is_autocast_enabled(tokens.device.type) else 4
    logits = 0 if cuda else 2 * 4 * c.vocab_size  # logits and log-softmax; CUDA works in chunks
    require_memory(
        f"a batch of {' × '.join(map(str, tokens.shape))} tokens",
        tokens.numel() * (width * (2 * c.d_model + c.mlp_width) + logits),
        tokens.device,
        "use a smaller batch or a shorter context",
    )


@torch.no_grad()
def evaluate(
    model: Transformer,
    batches: Iterable[Batch],
    token_bytes: NDArray[np.float64] | None = None,
    sum_over_ranks: Callable[[list[float]], list[float]] = list,
) -> Evaluation:
    """The mean loss over all targets of `batches`, summed over ranks if each has a part of them.

    `token_bytes` gives the bytes of text of each id, to count those of the targets.
    """
    loss_sum, tokens, text_bytes = 0.0, 0.0, 0.0
    training = model.training
    model.eval()
    largest = 0
    for batch in batches:
        if not training and batch.tokens.numel() > largest:  # training already checked for more
            largest = batch.tokens.numel()
            check_fits(model, batch.tokens)
        loss_sum += summed_loss(model, batch).item()
        targets = batch.targets[batch.targets != IGNORE_INDEX]
        tokens += targets.numel()
        if token_bytes is not None:
            text_bytes += float(token_bytes[targets.cpu().numpy()].sum())
    model.train(training)
    loss_sum, tokens, text_bytes = sum_over_ranks([loss_sum, tokens, text_bytes])
    return Evaluation(loss_sum / max(1.0, tokens), int(tokens), text_bytes or None)


def text_loss(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    context: int | None = None,
    batch_size: int = 8,
) -> Evaluation:
    """Predict every token of every text once, each in a window of `context` tokens.

    Each text is a document: its first token is predicted from the end-of-document token. Windows do
    not overlap, as in training; `context` defaults to the model's.
    """
    if isinstance(texts, str):  # each letter would be taken for a text
        raise UserError("texts is a list of texts, such as [text], not one text")
    context = context or model.config.context
    windows = []
    for ids in map(tokenizer.encode, texts):
        shifted = [tokenizer.end_of_document, *ids[:-1]]
        for start in range(0, len(ids), context):
            window = slice(start, start + context)
            windows.append((torch.tensor(shifted[window]), torch.tensor(ids[window])))
    if not windows:
        raise UserError("the text is empty; there is nothing to evaluate on")
    evaluation = evaluate(model, in_batches(windows, batch_size, model.E_input.device))
    return dataclasses.replace(evaluation, text_bytes=sum(len(text.encode()) for text in texts))


def in_batches(
    windows: Sequence[tuple[Tensor, Tensor]], batch_size: int, device: torch.device
) -> Iterator[Batch]:
    """Batches of windows; shorter ones are padded with targets that do not count."""
    for start in range(0, len(windows), batch_size):
        inputs, targets = map(list, zip(*windows[start : start + batch_size], strict=True))
        tokens = pad_sequence(inputs, batch_first=True)
        filled = pad_sequence(targets, batch_first=True, padding_value=IGNORE_INDEX)
        yield Batch(tokens.to(device), filled.to(device), None)
