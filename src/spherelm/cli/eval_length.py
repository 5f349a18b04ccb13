"""`spherelm eval length`: perplexity on whole books at growing lengths, several runs together."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from spherelm import cpu_isa
from spherelm.cli.eval import open_model
from spherelm.cli.generate import DTypeName
from spherelm.cli.parse import parse
from spherelm.console import open_console
from spherelm.errors import UserError
from spherelm.validate import require_folder, require_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from spherelm.data.tokenizer import Tokenizer
    from spherelm.eval.length import LengthCurve, Metric
    from spherelm.eval.loss import Evaluation


@dataclass(frozen=True)
class LengthFlags:
    """Perplexity at growing lengths with no change to RoPE: the paper's PG19 figure."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Runs, checkpoints or exported folders: GPT, nGPT, nGPT without QK-norm."""
    books: str
    """A folder of .txt files, a whole book each."""
    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 32768)
    """Lengths in tokens; each must divide the longest."""
    limit: int | None = None
    """Books to use at most."""
    metric: Literal["perplexity", "bits-per-byte"] = "perplexity"
    """What the table and the picture show. Perplexity is per token: runs with different tokenizers
    compare by bits per byte alone (lengths still count each run's own tokens)."""
    out: str | None = None
    """A folder for length.json and length.png."""
    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is."""
    dtype: DTypeName = "auto"
    """Precision of matrix products; auto: bf16 on CUDA, fp32 elsewhere."""
    tokenizer: str | None = None
    """A tokenizer, where the runs have none of their own."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(LengthFlags, argv, "eval length")
    cpu_isa.before_products(flags.dtype, flags.device)
    if not flags.runs or not flags.lengths or min(flags.lengths) < 1:
        raise UserError("eval length needs at least one run, and lengths of at least 1")
    if flags.limit is not None:
        require_int("--limit", flags.limit)
    if flags.out is not None:
        require_folder("--out", flags.out)
    for run in flags.runs:
        if flags.runs.count(run) > 1:
            raise UserError(f"{run} is named twice; name each run once")

    from spherelm.folders import kinds, place

    with place.results(flags.out, kinds.EVAL, inputs=[*flags.runs, flags.books]):
        return _measure(flags)


def _measure(flags: LengthFlags) -> int:
    from spherelm import durable
    from spherelm.eval.length import distinct_labels, length_curve, plot, read_books
    from spherelm.saved import find_saved, find_tokenizer, reading

    # Every run is looked at before minutes are spent on the first.
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
        model, products = reading(run, lambda now: open_model(now, flags.device, flags.dtype))
        tokens = books[tokenizer.fingerprint]
        with products:
            curves.append(
                length_curve(model, tokenizer, tokens, lengths, label=label, report=_progress(run))
            )
    values = [dataclasses.asdict(curve) for curve in curves]
    if flags.out is not None:
        durable.write_json(Path(flags.out) / "length.json", values)
        plot(curves, Path(flags.out) / "length.png", flags.metric)
    if flags.json:
        print(json.dumps({"books": flags.books, "metric": flags.metric, "curves": values}))
    else:
        _print_table(curves, flags.metric)
    return 0


def _refuse_several_tokenizers(runs: tuple[str, ...], tokenizers: list[Tokenizer]) -> None:
    """Perplexity is per token: between models with other tokens it says nothing."""
    for run, tokenizer in zip(runs, tokenizers, strict=True):
        if tokenizer.fingerprint != tokenizers[0].fingerprint:
            raise UserError(
                f"{runs[0]} and {run} have different tokenizers ({tokenizers[0].name} and "
                f"{tokenizer.name}), whose perplexities per token do not compare; "
                "use --metric bits-per-byte"
            )


def _progress(run: str) -> Callable[[int, Evaluation], None]:
    def report(length: int, evaluation: Evaluation) -> None:
        print(f"{run}: {length:,} tokens, perplexity {evaluation.perplexity:.2f}", file=sys.stderr)

    return report


def _print_table(curves: list[LengthCurve], metric: Metric) -> None:
    from rich.table import Table

    several = len({curve.tokenizer for curve in curves}) > 1
    table = Table(title=f"{metric.replace('-', ' ')} by length of context")
    table.add_column("model, trained at", style="bold")
    if several:
        table.add_column("tokenizer")
    for length in curves[0].lengths:
        table.add_column(f"{length:,}", justify="right")
    for curve in curves:
        names = (curve.label, curve.tokenizer) if several else (curve.label,)
        digits = 2 if metric == "perplexity" else 4
        numbers = (f"{value:.{digits}f}" for value in curve.values(metric))
        table.add_row(*names, *numbers)
    open_console().print(table)
