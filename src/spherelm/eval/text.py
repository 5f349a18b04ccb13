"""Loss, perplexity and bits per byte of a model on any text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from spherelm.data.loader import Batch
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.eval.loss import evaluate
from spherelm.model.transformer import Transformer
from spherelm.ops.interface import IGNORE_INDEX


@dataclass(frozen=True)
class TextLoss:
    """Cross-entropy over a text of `text_bytes` bytes, cut into `tokens` tokens."""

    loss: float
    perplexity: float
    bits_per_byte: float
    tokens: int
    text_bytes: int


def text_loss(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    context: int | None = None,
    batch_size: int = 8,
) -> TextLoss:
    """Predict every token of every text once, each in a window of `context` tokens.

    A text is a document: its first token is predicted after the token that ends documents. Windows
    do not overlap, as in training; `context` is the model's if not given.
    """
    context = context or model.config.context
    documents = [tokenizer.encode(text) for text in texts]
    if not any(documents):
        raise UserError("the text is empty; there is nothing to evaluate on")
    rows = [row for ids in documents for row in _windows(ids, tokenizer.end_of_document, context)]
    evaluation = evaluate(model, _batches(rows, batch_size, model.E_input.device))
    text_bytes = sum(len(text.encode()) for text in texts)
    return TextLoss(
        loss=evaluation.loss,
        perplexity=evaluation.perplexity,
        bits_per_byte=evaluation.loss * evaluation.tokens / math.log(2) / text_bytes,
        tokens=evaluation.tokens,
        text_bytes=text_bytes,
    )


def read_text(path: str | Path) -> str:
    """A text file in UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the text {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text in UTF-8") from None


Row = tuple[list[int], list[int]]


def _windows(ids: list[int], first: int, context: int) -> Iterator[Row]:
    """Inputs and targets of each window; the last one may be shorter."""
    inputs = [first, *ids[:-1]]
    for start in range(0, len(ids), context):
        yield inputs[start : start + context], ids[start : start + context]


def _batches(rows: Sequence[Row], batch_size: int, device: torch.device) -> Iterator[Batch]:
    """Rows of equal length together; shorter ones are filled with targets that do not count."""
    for start in range(0, len(rows), batch_size):
        part = rows[start : start + batch_size]
        longest = max(len(inputs) for inputs, _ in part)
        tokens = [inputs + [0] * (longest - len(inputs)) for inputs, _ in part]
        targets = [t + [IGNORE_INDEX] * (longest - len(t)) for _, t in part]
        yield Batch(torch.tensor(tokens, device=device), torch.tensor(targets, device=device), None)
