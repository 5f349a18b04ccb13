"""`spherelm eval`: loss on text; `eval length`: perplexity by length; `eval tasks`: the paper's."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import tyro

from spherelm.cli.saved_model import ModelsFlags, check_runs, parse_for_model
from spherelm.console import print_table, show
from spherelm.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from spherelm.data.tokenizer import Tokenizer
    from spherelm.eval.texts import NamedText
    from spherelm.model.transformer import Transformer
    from spherelm.saved import Saved


KINDS = ("length", "tasks")

Metric = Literal["bits-per-byte", "loss", "perplexity"]


@dataclass(frozen=True, kw_only=True)
class EvalFlags(ModelsFlags):
    """Loss, perplexity and bits per byte of one model or several, in one table: on any texts, or on
    the validation set of each run's data.

        spherelm eval runs/gpt runs/ngpt --text novel.txt news.jsonl.gz

    See also `spherelm eval length --help` and `spherelm eval tasks --help`.
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories (their newest checkpoints), checkpoints, or exported folders."""
    text: tuple[str, ...] = ()
    """Texts, one column of the table each: files (.txt, .jsonl, .parquet and others, also as .gz,
    .bz2, .xz or .zst), folders of such files, or - for stdin. Unset: the validation set of the
    run's data."""
    metric: Metric = "bits-per-byte"
    """What the table shows if there are several texts. Loss and perplexity are per token, so they
    are comparable only between models with the same tokenizer."""
    field: str = "text"
    """Field or column that holds the text in .jsonl and .parquet files."""
    data: str | None = None
    """The folder of the run's data, if it has moved; tokens of another tokenizer are refused."""
    context: int | None = None
    """Tokens the model sees at once. Unset: as many as in training."""
    batch_size: int = 8
    """Windows in a forward pass."""

    def open_at_length(self, saved: Saved) -> tuple[Transformer, AbstractContextManager[object]]:
        """The model, with its context extended to --context if that is given."""
        model, precision = self.open(saved)
        if self.context is not None:
            model.extend_context(self.context)
        return model, precision


def main(argv: list[str]) -> int:
    if argv and argv[0] in KINDS:
        module = importlib.import_module(f"spherelm.cli.eval_{argv[0]}")
        return int(module.main(argv[1:]))
    if argv and not os.path.exists(argv[0]) and (kind := get_close_matches(argv[0], KINDS, n=1)):
        raise UserError(f"{argv[0]} does not exist; did you mean `spherelm eval {kind[0]}`?")
    flags = parse_for_model(EvalFlags, argv, "eval")
    check_runs("eval", flags.runs)
    if flags.text and flags.data is not None:
        raise UserError("--text and --data cannot be given together; give one of them")

    from spherelm.data.tokenizer import same_ids
    from spherelm.eval.texts import read_texts
    from spherelm.saved import reading

    flags.execution()
    texts = read_texts(flags.text, flags.field)
    for run in flags.runs[1:]:  # a mistake in any run should show before the first takes minutes
        reading(run, lambda saved: _check(saved, flags))
    results: list[dict[str, Any]] = []
    tokenizers: list[Tokenizer] = []
    for run in flags.runs:
        measured, tokenizer = reading(run, lambda saved: _measure(saved, texts, flags))
        results += [{"run": run, **found} for found in measured]
        tokenizers += [] if tokenizer is None else [tokenizer]
    alike = all(same_ids(tokenizers[0], each) for each in tokenizers)
    return show({"results": results}, flags.json, lambda: _print(results, flags, alike))


def _check(saved: Saved, flags: EvalFlags) -> None:
    """Refuse a model without a tokenizer for the texts, or whose validation data is missing."""
    from spherelm.saved import find_tokenizer, open_own_data

    if flags.text:
        find_tokenizer(saved, flags.tokenizer)
    else:
        open_own_data(saved, flags.data, flags.tokenizer)


def _measure(
    saved: Saved, texts: list[NamedText], flags: EvalFlags
) -> tuple[list[dict[str, Any]], Tokenizer | None]:
    """One model's results on every text and the tokenizer used; without texts, its result on the
    validation set, which is already tokens."""
    if not texts:
        return [{"checkpoint": saved.folder.name, **_on_validation(saved, flags)}], None

    from spherelm.eval.loss import text_loss
    from spherelm.saved import find_tokenizer

    tokenizer = find_tokenizer(saved, flags.tokenizer)
    model, precision = flags.open_at_length(saved)
    results = []
    for text in texts:
        with precision:
            measured = text_loss(
                model,
                tokenizer,
                text.documents,
                context=flags.context,
                batch_size=flags.batch_size,
            )
        _say(flags, saved, text.name, measured.loss)
        results.append(
            {
                "checkpoint": saved.folder.name,
                "tokenizer": tokenizer.name,
                "text": text.name,
                "documents": len(text.documents),
                "context": flags.context or model.config.context,
                **measured.numbers(),
                "text_bytes": measured.text_bytes,
            }
        )
    return results, tokenizer


def _say(flags: EvalFlags, saved: Saved, text: str, loss: float) -> None:
    """Print progress if there are several results to wait for."""
    if len(flags.runs) * len(flags.text) > 1:
        print(f"{saved.run_root} on {text}: loss {loss:.4f}", file=sys.stderr, flush=True)


def _on_validation(saved: Saved, flags: EvalFlags) -> dict[str, Any]:
    from spherelm.data.loader import WindowReader, evaluation_batches
    from spherelm.eval.loss import evaluate
    from spherelm.saved import open_own_data

    run = saved.config
    dataset = open_own_data(saved, flags.data, flags.tokenizer)
    context = flags.context or run.model.context
    there_are = WindowReader(dataset.val, context).n_windows
    model, precision = flags.open_at_length(saved)
    batches = evaluation_batches(
        dataset.val,
        context=context,
        n_sequences=run.train.eval_sequences,
        batch_size=flags.batch_size,
        within_documents=run.data.within_documents,
        restart_positions=run.data.restart_positions,
        device=model.E_input.device,
    )
    with precision:
        measured = evaluate(model, batches, dataset.token_bytes("val"))
    builtin = flags.data is None and run.data.path is None
    return {
        "text": "validation set",
        "data": "the built-in corpus" if builtin else str(dataset.path),
        "sequences": min(run.train.eval_sequences, there_are),
        "sequences_there_are": there_are,
        "context": context,
        **measured.numbers(),
    }


def _what_was_read(result: dict[str, Any]) -> str:
    """The name of the text, or which part of which validation set."""
    if "sequences" not in result:
        return str(result["text"])
    read, there_are = result["sequences"], result["sequences_there_are"]
    part = f"all {there_are:,}" if read == there_are else f"{read:,} of {there_are:,}"
    spread = "" if read == there_are else ", evenly spread"
    return (
        f"the validation set of {result['data']}: {part} sequences of {result['context']:,} tokens"
        + spread
    )


NUMBERS = {"loss": 4, "perplexity": 4, "bits_per_byte": 4, "tokens": 0}
"""The numbers reported for one text, with their decimal places."""


def _print(results: list[dict[str, Any]], flags: EvalFlags, alike: bool) -> None:
    """One table: a row per model; a column per text or, for a single text, per number.

    `alike` says whether all models share one tokenizer.
    """
    note = (
        None
        if alike
        else "Loss and perplexity are per token, and these models have different tokenizers: "
        "compare bits per byte."
    )
    if len(flags.text) > 1:
        from spherelm.eval.texts import short_names

        metric = flags.metric.replace("-", "_")
        rows = [
            (run, *(_number(r, metric) for r in results if r["run"] == run)) for run in flags.runs
        ]
        title = f"{flags.metric.replace('-', ' ')} by text"
        note = None if metric == "bits_per_byte" else note
        print_table(title, rows, ["model", *short_names(flags.text)], caption=note)
        return
    read = list(dict.fromkeys(map(_what_was_read, results)))
    each = len(read) > 1  # validation sets that differ
    rows = [
        (
            result["run"],
            *(_number(result, name) for name in NUMBERS),
            *([_what_was_read(result)] if each else []),
        )
        for result in results
    ]
    head = ["model", *(name.replace("_", " ") for name in NUMBERS), *(["on"] if each else [])]
    print_table(None if each else f"on {read[0]}", rows, head, words=["on"], caption=note)


def _number(result: dict[str, Any], name: str) -> str:
    value = result.get(name)
    return "" if value is None else f"{value:,.{NUMBERS[name]}f}"
