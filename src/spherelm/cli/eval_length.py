"""`spherelm eval length`: perplexity on whole books at growing lengths, several runs together."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from spherelm import cpu_isa
from spherelm.cli.eval import open_model
from spherelm.cli.generate import DTypeName
from spherelm.cli.parse import parse
from spherelm.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from spherelm.eval.length import LengthCurve
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

    from spherelm.eval.length import length_curve, plot, read_books
    from spherelm.exchange.load import find_saved, find_tokenizer

    # Every run is looked at before minutes are spent on the first.
    saved = [find_saved(run) for run in flags.runs]
    tokenizers = [find_tokenizer(found, flags.tokenizer) for found in saved]
    lengths = tuple(sorted(set(flags.lengths)))
    books: dict[str, Tensor] = {}  # runs with one tokenizer share them
    for tokenizer in tokenizers:
        if tokenizer.fingerprint not in books:
            books[tokenizer.fingerprint] = read_books(
                flags.books, tokenizer, lengths[-1], flags.limit
            )
    curves = []
    for run, found, tokenizer in zip(flags.runs, saved, tokenizers, strict=True):
        model, products = open_model(found, flags.device, flags.dtype)
        tokens = books[tokenizer.fingerprint]
        with products:
            curves.append(length_curve(model, tokens, lengths, report=_progress(run)))
    values = [dataclasses.asdict(curve) for curve in curves]
    if flags.out is not None:
        out = Path(flags.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "length.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        plot(curves, out / "length.png")
    if flags.json:
        print(json.dumps({"books": flags.books, "curves": values}))
    else:
        _print_table(curves)
    return 0


def _progress(run: str) -> Callable[[int, Evaluation], None]:
    def report(length: int, evaluation: Evaluation) -> None:
        print(f"{run}: {length:,} tokens, perplexity {evaluation.perplexity:.2f}", file=sys.stderr)

    return report


def _print_table(curves: list[LengthCurve]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="perplexity by length of context")
    table.add_column("model, trained at", style="bold")
    for length in curves[0].lengths:
        table.add_column(f"{length:,}", justify="right")
    for curve in curves:
        table.add_row(curve.label, *(f"{p:.2f}" for p in curve.perplexities))
    Console().print(table)
