"""Perplexity by length of context: the paper's PG19 figure.

Whole books, with RoPE unchanged. The same tokens are predicted at every length: the beginning of
each book, as long as the longest length, cut into windows of each length. So curves differ by what
the model could see, not by what it had to predict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from spherelm.console import format_context
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.eval.loss import Evaluation, evaluate, in_batches
from spherelm.eval.texts import read_text
from spherelm.model.config import ARCH_NAMES, Arch, ModelConfig
from spherelm.model.transformer import Transformer
from spherelm.plots.chart import Axis, Chart, Series, roles_for

Metric = Literal["perplexity", "bits-per-byte"]
"""Perplexity is per token, so it is comparable only between models with the same tokenizer."""


@dataclass(frozen=True)
class LengthCurve:
    """Perplexity of one model at each length."""

    label: str
    context: int
    """The length it was trained at."""
    lengths: tuple[int, ...]
    losses: tuple[float, ...]
    perplexities: tuple[float, ...]
    tokens: int
    """Predicted at each length."""
    bits_per_byte: tuple[float, ...]
    """The losses per byte of text, which are comparable between tokenizers."""
    tokenizer: str
    """The tokenizer of the predicted tokens."""

    def values(self, metric: Metric) -> tuple[float, ...]:
        """The numbers to show."""
        return self.perplexities if metric == "perplexity" else self.bits_per_byte


def distinct_labels(configs: Sequence[ModelConfig], runs: Sequence[str]) -> list[str]:
    """A label for each run, with the run's name added where labels would be equal."""
    labels = [label_of(config) for config in configs]
    return [
        f"{label} ({run})" if labels.count(label) > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]


def label_of(config: ModelConfig) -> str:
    """A model's name in the table and the plot."""
    name = ARCH_NAMES[config.arch]
    without = "" if config.arch == "gpt" or config.qk_norm else " without QK-norm"
    return f"{name}{without}, {config.context:,}"


def read_books(
    folder: str | Path, tokenizers: Sequence[Tokenizer], length: int, limit: int | None = None
) -> list[torch.Tensor]:
    """The first `length` + 1 tokens of each book, a .txt file, by each tokenizer: (N, T + 1) each.

    Books that are too short for any of the tokenizers are left out, so that all read the same ones.
    """
    files = sorted(Path(folder).glob("*.txt"))
    if not files:
        raise UserError(f"{folder} holds no books: there is no .txt file in it")
    books: list[list[list[int]]] = []
    for file in files:
        if limit is not None and len(books) == limit:
            break
        # A token is at least a byte, and rarely more than 16.
        text = read_text(file)[: 16 * (length + 1)]
        ids = [tokenizer.encode(text)[: length + 1] for tokenizer in tokenizers]
        if all(len(each) == length + 1 for each in ids):
            books.append(ids)
    if not books:
        raise UserError(
            f"no book in {folder} has {length + 1:,} tokens; give longer ones or shorter --lengths"
        )
    return [torch.tensor(each) for each in zip(*books, strict=True)]


def length_curve(
    model: Transformer,
    tokenizer: Tokenizer,
    books: torch.Tensor,
    lengths: Sequence[int],
    *,
    label: str | None = None,
    tokens_per_batch: int = 32768,
    report: Callable[[int, Evaluation], None] = lambda length, evaluation: None,
) -> LengthCurve:
    """The perplexity of `model` on books at each length; the longest must be the books' length."""
    longest = books.shape[1] - 1
    if max(lengths) != longest or any(longest % length for length in lengths):
        raise UserError(f"every length must divide the longest, {longest:,}, not {list(lengths)}")
    text_bytes = sum(len(tokenizer.decode(book[1:].tolist()).encode()) for book in books)
    trained_at, device = model.rope.length, model.E_input.device
    measured: list[Evaluation] = []
    try:
        model.extend_context(longest)
        for length in lengths:
            inputs = books[:, :-1].reshape(-1, length)
            targets = books[:, 1:].reshape(-1, length)
            windows = list(zip(inputs, targets, strict=True))
            rows = max(1, tokens_per_batch // length)
            evaluation = evaluate(model, in_batches(windows, rows, device))
            measured.append(replace(evaluation, text_bytes=text_bytes))
            report(length, measured[-1])
    finally:
        model.rope.rebuild(trained_at)
    return LengthCurve(
        label or label_of(model.config),
        model.config.context,
        tuple(lengths),
        tuple(each.loss for each in measured),
        tuple(each.perplexity for each in measured),
        books[:, 1:].numel(),
        tuple(each.bits_per_byte or 0.0 for each in measured),
        tokenizer.name,
    )


def chart_of(curves: Sequence[LengthCurve], metric: Metric = "perplexity") -> Chart:
    """All curves in one chart, without infinite values."""
    name = metric.replace("-", " ")
    archs: list[Arch] = ["gpt" if c.label.startswith("GPT") else "ngpt" for c in curves]
    lines: list[Series] = []
    for curve, arch, role in zip(curves, archs, roles_for(archs), strict=True):
        points = zip(curve.lengths, curve.values(metric), strict=True)
        shown = [(length, value) for length, value in points if math.isfinite(value)]
        lines.append(Series(curve.label, role, shown, square=arch == "gpt"))
    lengths = sorted({length for curve in curves for length in curve.lengths})
    ticks = [(n, format_context(n)) for n in lengths]
    return Chart(
        name="length",
        title=f"{name[0].upper()}{name[1:]} by length of context",
        description=f"{name} of {'; '.join(curve.label for curve in curves)}",
        x=Axis("length of context", log=True, ticks=ticks),
        y=Axis(name, log=True),
        series=lines,
        legend="model, trained at",
    )
