"""Perplexity by length of context: the paper's PG19 figure.

Whole books, RoPE as it is. The same tokens are predicted at every length: of each book as many as
the longest length has, cut into windows of the length in question. So curves differ by what the
model could see, not by what it had to predict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from spherelm import durable
from spherelm.data.loader import Batch
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.eval.loss import Evaluation, evaluate, read_text
from spherelm.model.config import ModelConfig
from spherelm.model.transformer import Transformer

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)

Metric = Literal["perplexity", "bits-per-byte"]
"""Perplexity is per token, and compares between models of one tokenizer only."""

MOST_MARKS = 8
MARKS_OF_A_DECADE = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)
"""Round numbers at distances that look alike on a logarithmic axis, the finest first."""


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
    """The losses per byte of text: what compares between tokenizers."""
    tokenizer: str
    """Whose tokens were predicted."""

    def values(self, metric: Metric) -> tuple[float, ...]:
        """The numbers to show."""
        return self.perplexities if metric == "perplexity" else self.bits_per_byte


def distinct_labels(configs: Sequence[ModelConfig], runs: Sequence[str]) -> list[str]:
    """A label for each run; where two would be alike, with the name of the run."""
    labels = [label_of(config) for config in configs]
    return [
        f"{label} ({run})" if labels.count(label) > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]


def label_of(config: ModelConfig) -> str:
    """How a model is called in the table and the plot."""
    name = {"gpt": "GPT", "ngpt": "nGPT"}[config.arch]
    without = "" if config.arch == "gpt" or config.qk_norm else " without QK-norm"
    return f"{name}{without}, {config.context:,}"


def read_books(
    folder: str | Path, tokenizers: Sequence[Tokenizer], length: int, limit: int | None = None
) -> list[torch.Tensor]:
    """The first `length` + 1 tokens of each book, a .txt file, by each tokenizer: (N, T + 1) each.

    Books that are not long enough for all of the tokenizers are left out, so that all read the
    same ones.
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
    lengths: Sequence[int] = LENGTHS,
    *,
    label: str | None = None,
    tokens_per_batch: int = 32768,
    report: Callable[[int, Evaluation], None] = lambda length, evaluation: None,
) -> LengthCurve:
    """The perplexity of `model` on the tokens of books at each length; the largest is theirs."""
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
            rows = max(1, tokens_per_batch // length)
            batches = (
                Batch(inputs[i : i + rows].to(device), targets[i : i + rows].to(device), None)
                for i in range(0, len(inputs), rows)
            )
            measured.append(replace(evaluate(model, batches), text_bytes=text_bytes))
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


def plot(curves: Sequence[LengthCurve], file: Path, metric: Metric = "perplexity") -> None:
    """All curves in one picture, as PNG."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for curve in curves:
        style = "--" if curve.label.startswith("GPT") else "-"
        axes.plot(curve.lengths, curve.values(metric), style, marker="o", label=curve.label)
    axes.set_xscale("log", base=2)
    lengths = sorted({length for curve in curves for length in curve.lengths})
    axes.set_xticks(lengths, [f"{n // 1024}k" if n % 1024 == 0 else str(n) for n in lengths])
    if any(math.isfinite(value) for curve in curves for value in curve.values(metric)):
        axes.set_yscale("log")
        marks = round_numbers(*axes.get_ylim())
        axes.set_yticks(marks, [f"{mark:,.10g}" for mark in marks])
    axes.minorticks_off()  # they would be labelled 2 × 10²
    axes.set_xlabel("length of context")
    axes.set_ylabel(metric.replace("-", " "))
    axes.legend(title="model, trained at")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    with durable.written(file) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    pyplot.close(figure)


def round_numbers(low: float, high: float) -> list[float]:
    """Marks of a logarithmic axis from `low` to `high`: as many as do not crowd it."""
    if high < 2 * low:  # hardly a curve: evenly, as on a ruler
        from matplotlib.ticker import MaxNLocator

        even = MaxNLocator(MOST_MARKS - 1, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(mark) for mark in even if low <= mark <= high]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in MARKS_OF_A_DECADE:
        marks = [float(f"{digit}e{k}") for k in decades for digit in digits]
        marks = [mark for mark in marks if low <= mark <= high]
        if len(marks) <= MOST_MARKS:
            return marks
    return marks[:: -(-len(marks) // MOST_MARKS)]


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UserError("a plot needs matplotlib: pip install 'spherelm[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
