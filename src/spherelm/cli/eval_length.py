"""`spherelm eval length`: perplexity on whole books at growing lengths, several runs together."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from spherelm.cli.saved_model import ModelsFlags, check_runs, parse_for_model
from spherelm.console import print_table, show
from spherelm.errors import UserError

if TYPE_CHECKING:
    from spherelm.data.tokenizer import Tokenizer
    from spherelm.eval.length import LengthCurve, Metric
    from spherelm.eval.loss import Evaluation

DIGITS = {"perplexity": 2, "bits-per-byte": 4}
"""Decimal places."""


@dataclass(frozen=True, kw_only=True)
class LengthFlags(ModelsFlags):
    """Perplexity at growing lengths with no change to RoPE: the paper's PG19 figure.

    spherelm eval length runs/gpt runs/ngpt --books books
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Runs, checkpoints or exported folders: GPT, nGPT, nGPT without QK-norm."""
    books: str
    """A folder of .txt files, a whole book each."""
    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 32768)
    """Lengths in tokens; each must divide the longest."""
    limit: int | None = None
    """Use at most this many books."""
    metric: Literal["perplexity", "bits-per-byte"] = "perplexity"
    """What the table and the picture show. Perplexity is per token: runs with different tokenizers
    are comparable only by bits per byte (lengths still count each run's own tokens)."""
    out: str | None = None
    """A folder for length.json and length.png."""


def main(argv: list[str]) -> int:
    flags = parse_for_model(LengthFlags, argv, "eval length")
    check_runs("eval length", flags.runs)
    if not flags.lengths:
        raise UserError("eval length needs at least one length")

    from spherelm.folders import kinds, place

    with place.results(flags.out, kinds.EVAL, inputs=[*flags.runs, flags.books]):
        return _measure(flags)


def _measure(flags: LengthFlags) -> int:
    from spherelm import durable
    from spherelm.eval.length import chart_of, distinct_labels, length_curve, read_books
    from spherelm.plots import png
    from spherelm.saved import find_saved, find_tokenizer, reading

    # Check every run before spending minutes on the first.
    saved = [find_saved(run) for run in flags.runs]
    tokenizers = [find_tokenizer(found, flags.tokenizer) for found in saved]
    if flags.metric == "perplexity":
        _refuse_several_tokenizers(flags.runs, tokenizers)
    labels = distinct_labels([found.config.model for found in saved], flags.runs)
    lengths = tuple(sorted(set(flags.lengths)))
    by_fingerprint = {tokenizer.fingerprint: tokenizer for tokenizer in tokenizers}
    read = read_books(flags.books, list(by_fingerprint.values()), lengths[-1], flags.limit)
    books = dict(zip(by_fingerprint, read, strict=True))  # runs with one tokenizer share them
    curves = []
    for run, label, tokenizer in zip(flags.runs, labels, tokenizers, strict=True):
        model, precision = reading(run, flags.open)
        tokens = books[tokenizer.fingerprint]
        with precision:
            curves.append(
                length_curve(
                    model,
                    tokenizer,
                    tokens,
                    lengths,
                    label=label,
                    report=partial(_report, run, flags.metric),
                )
            )
    values = [
        {"run": run, **dataclasses.asdict(curve)}
        for run, curve in zip(flags.runs, curves, strict=True)
    ]
    if flags.out is not None:
        durable.write_json(Path(flags.out) / "length.json", values)
        if png.write([chart_of(curves, flags.metric)], Path(flags.out)) is None:
            print(png.NO_MATPLOTLIB, file=sys.stderr)
    result = {"books": flags.books, "metric": flags.metric, "curves": values}
    return show(result, flags.json, lambda: _print(curves, flags.metric))


def _refuse_several_tokenizers(runs: tuple[str, ...], tokenizers: list[Tokenizer]) -> None:
    """Refuse models with different tokenizers: their perplexities per token cannot be compared."""
    from spherelm.data.tokenizer import same_ids

    for run, tokenizer in zip(runs, tokenizers, strict=True):
        if not same_ids(tokenizer, tokenizers[0]):
            raise UserError(
                f"{runs[0]} and {run} have different tokenizers ({tokenizers[0].name} and "
                f"{tokenizer.name}), whose perplexities per token cannot be compared; "
                "use --metric bits-per-byte"
            )


def _report(run: str, metric: Metric, length: int, evaluation: Evaluation) -> None:
    """Print progress, in the metric that the table will show."""
    value = evaluation.perplexity if metric == "perplexity" else evaluation.bits_per_byte or 0.0
    said = f"{metric.replace('-', ' ')} {value:.{DIGITS[metric]}f}"
    print(f"{run}: {length:,} tokens, {said}", file=sys.stderr)


def _print(curves: list[LengthCurve], metric: Metric) -> None:
    several = len({curve.tokenizer for curve in curves}) > 1
    names = ["model, trained at", "tokenizer"] if several else ["model, trained at"]
    print_table(
        f"{metric.replace('-', ' ')} by length of context",
        [
            (
                *((curve.label, curve.tokenizer) if several else (curve.label,)),
                *(f"{value:.{DIGITS[metric]}f}" for value in curve.values(metric)),
            )
            for curve in curves
        ],
        [*names, *(f"{length:,}" for length in curves[0].lengths)],
        words=["tokenizer"],
    )
