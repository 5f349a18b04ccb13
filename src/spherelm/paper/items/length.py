"""Figure 14: perplexity on long texts, beyond the length a model was trained at."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from spherelm.errors import UserError
from spherelm.model.config import Arch
from spherelm.paper import reported
from spherelm.paper.item import Item
from spherelm.paper.points import BASELINE, CONTEXTS, Context, Point
from spherelm.paper.result import Cell, Column, Result, Table
from spherelm.paper.size import CONTEXT_TOKENS, Size
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Chart, Picture

if TYPE_CHECKING:
    import torch

    from spherelm.data.tokenizer import Tokenizer
    from spherelm.eval.length import LengthCurve

NO_QK_NORM = "no-qk-norm"
WITHOUT = "nGPT without QK-norm"
KINDS: dict[str, tuple[Arch, str]] = {
    "GPT": ("gpt", BASELINE),
    "nGPT": ("ngpt", BASELINE),
    WITHOUT: ("ngpt", NO_QK_NORM),
}
CURVES: dict[tuple[str, Context], Point] = {
    (name, context): Point(arch, context=context, variant=variant)
    for context in CONTEXTS
    for name, (arch, variant) in KINDS.items()
}
_SAID = {
    "GPT": "rises dramatically",
    "nGPT": "stable",
    WITHOUT: "between the two",
}
"""What the paper reads off its figure."""
SHORT = {WITHOUT: "no QK"}
BUILT_IN = "validation text of the built-in corpus"
BOOKS = 8
"""Stretches of the built-in corpus that stand in for books."""


def _lengths(size: Size) -> list[int]:
    """The paper's 1k to 32k, scaled down with the size's context for 1k."""
    return [n * size.contexts["1k"] // CONTEXT_TOKENS["1k"] for n in reported.LENGTHS]


def _make(bench: Workbench) -> Result:
    lengths = _lengths(bench.size)
    found: dict[tuple[str, Context], dict[str, Any]] = {}
    for (name, context), point in bench.each(list(CURVES.items()), "models read"):
        measure = partial(_measure, bench, point, lengths)
        source = _source(bench), bench.books
        found[name, context] = bench.measured(point, "length", *source, measure)
    columns = [
        Column("model"),
        Column("trained at", "tokens"),
        *(Column(f"at {length:,}", "perplexity", "ours", digits=2) for length in lengths),
        Column("longest / trained length", "×", "ours", digits=2),
        Column("beyond its length", whose="paper"),
    ]
    rows: list[list[Cell]] = []
    for (name, context), curve in found.items():
        trained_at = bench.size.contexts[context]
        values = curve["perplexities"]
        rise = values[-1] / values[lengths.index(trained_at)]
        rows.append([name, trained_at, *values, rise, _SAID[name]])
    return Result(
        [Table("perplexity", "Perplexity by length of context", columns, rows)],
        [
            Picture(
                _chart(bench, "left", ("GPT", "nGPT"), found),
                "The paper's left picture. The number is the length of training.",
            ),
            Picture(
                _chart(bench, "right", ("nGPT", WITHOUT), found),
                "The paper's right picture. The number is the length of training; dotted, in the "
                "colour of the same length: without QK-norm.",
            ),
        ],
        [
            f"Measured on {_source(bench)}, on the same {next(iter(found.values()))['tokens']:,} "
            "tokens at every length, with RoPE unchanged.",
            "The paper prints neither its perplexities nor the size of these models; ours are "
            f"{bench.size.model_name('0.5B')}.",
        ],
    )


def _source(bench: Workbench) -> str:
    return BUILT_IN if bench.books is None else f"the books in {bench.books.resolve()}"


def _measure(bench: Workbench, point: Point, lengths: Sequence[int]) -> dict[str, Any]:
    from spherelm.eval.length import length_curve
    from spherelm.ops.device import in_precision

    model, tokenizer, _ = bench.model(point)
    books = _books(bench, tokenizer, max(lengths))
    with in_precision("auto", bench.device):
        curve = length_curve(model, tokenizer, books, lengths)
    return dataclasses.asdict(curve)


def _books(bench: Workbench, tokenizer: Tokenizer, longest: int) -> torch.Tensor:
    """The beginnings of books as tokens.  -> (books, longest + 1)"""
    import torch

    if bench.books is not None:
        from spherelm.eval.length import read_books

        return read_books(bench.books, [tokenizer], longest)[0]
    from spherelm.data.open import open_builtin

    tokens = open_builtin().val.shards[0].tokens[: BOOKS * (longest + 1)]
    if len(tokens) < BOOKS * (longest + 1):
        raise UserError(f"the built-in corpus has too few tokens for {BOOKS} texts of {longest:,}")
    return torch.tensor(tokens.tolist()).reshape(BOOKS, longest + 1)


def _chart(
    bench: Workbench,
    side: str,
    names: Sequence[str],
    found: dict[tuple[str, Context], dict[str, Any]],
) -> Chart:
    from spherelm.eval.length import chart_of

    curves = [
        _curve(found[name, context], f"{SHORT.get(name, name)} {bench.size.contexts[context]}")
        for name in names
        for context in CONTEXTS
    ]
    chart = chart_of(curves)
    lines = list(chart.series)
    first, last = lines[: len(CONTEXTS)], lines[len(CONTEXTS) :]
    if names[-1] == WITHOUT:  # six lines of nGPT need more colours than there are
        pairs = zip(last, first, strict=True)
        last = [dataclasses.replace(line, role=usual.role, dotted=True) for line, usual in pairs]
    title = " and ".join(names)
    return dataclasses.replace(chart, name=f"length-{side}", title=title, series=[*first, *last])


def _curve(values: dict[str, Any], label: str) -> LengthCurve:
    from spherelm.eval.length import LengthCurve

    given = {key: value for key, value in values.items() if key != "source"}
    return LengthCurve(**given | {"label": label})


ITEM = Item(
    "length",
    "Figure 14",
    "Perplexity beyond the length of training",
    "perplexity on long texts from 1k to 32k of GPT, nGPT and nGPT without QK-norm",
    lambda size: list(CURVES.values()),
    _make,
    books=True,
)
