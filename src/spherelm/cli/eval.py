"""`spherelm eval`: loss on text; `eval length`: perplexity by length; `eval tasks`: the paper's."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spherelm.cli.saved_model import ModelFlags, parse_for_model
from spherelm.console import print_table, show
from spherelm.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from spherelm.model.transformer import Transformer
    from spherelm.saved import Saved


KINDS = ("length", "tasks")


@dataclass(frozen=True, kw_only=True)
class EvalFlags(ModelFlags):
    """Loss, perplexity and bits per byte on any text, or on the validation set of the run's data.

    See also `spherelm eval length --help` and `spherelm eval tasks --help`.
    """

    text: tuple[str, ...] = ()
    """Text files to evaluate on, each a document. Unset: the validation set of the run's data."""
    data: str | None = None
    """A folder of the run's data, where it has moved; tokens of another tokenizer are refused."""
    context: int | None = None
    """Tokens the model sees at once. Unset: those it was trained with."""
    batch_size: int = 8
    """Windows in a forward pass."""

    def open_at_length(self, saved: Saved) -> tuple[Transformer, AbstractContextManager[object]]:
        """The model, ready for as many tokens as it is to see."""
        model, precision = self.open(saved)
        if self.context is not None:
            model.extend_context(self.context)
        return model, precision


def main(argv: list[str]) -> int:
    if argv and argv[0] in KINDS:
        module = importlib.import_module(f"spherelm.cli.eval_{argv[0]}")
        return int(module.main(argv[1:]))
    flags = parse_for_model(EvalFlags, argv, "eval")
    if flags.text and flags.data is not None:
        raise UserError("--text and --data cannot be given together; give one of them")

    from spherelm.saved import reading

    measure = _on_texts if flags.text else _on_validation
    report = reading(flags.run, lambda saved: measure(saved, flags))
    return show({"run": flags.run, **report}, flags.json, lambda: _print(flags.run, report))


def _on_texts(saved: Saved, flags: EvalFlags) -> dict[str, Any]:
    from spherelm.eval.loss import read_text, text_loss
    from spherelm.saved import find_tokenizer

    tokenizer = find_tokenizer(saved, flags.tokenizer)
    texts = [read_text(path) for path in flags.text]
    model, precision = flags.open_at_length(saved)
    with precision:
        measured = text_loss(
            model, tokenizer, texts, context=flags.context, batch_size=flags.batch_size
        )
    return {"text": list(flags.text), **measured.numbers(), "text_bytes": measured.text_bytes}


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
        "data": "built-in corpus" if builtin else str(dataset.path),
        "sequences": min(run.train.eval_sequences, there_are),
        "sequences_there_are": there_are,
        "context": context,
        **measured.numbers(),
    }


def _what_was_read(report: dict[str, Any]) -> str:
    """The texts, or which part of which validation set."""
    if "sequences" not in report:
        return ", ".join(report["text"])
    read, there_are = report["sequences"], report["sequences_there_are"]
    part = f"all {there_are:,}" if read == there_are else f"{read:,} of {there_are:,}"
    spread = "" if read == there_are else ", evenly spread"
    return (
        f"the validation set of {report['data']}: {part} sequences of {report['context']:,} tokens"
        + spread
    )


def _print(run: str, report: dict[str, Any]) -> None:
    names = ("loss", "perplexity", "bits_per_byte", "tokens", "text_bytes")
    values = {name: report[name] for name in names if report.get(name) is not None}
    print_table(
        f"{run} on {_what_was_read(report)}",
        [
            (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
            for name, value in values.items()
        ],
    )
