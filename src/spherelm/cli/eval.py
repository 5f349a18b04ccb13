"""`spherelm eval`: loss on text; `eval length`: perplexity by length; `eval tasks`: the paper's."""

from __future__ import annotations

import dataclasses
import importlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from spherelm import cpu_isa
from spherelm.cli.generate import DTypeName, inference_dtype
from spherelm.cli.parse import parse
from spherelm.console import open_console
from spherelm.errors import UserError
from spherelm.validate import require_int

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from spherelm.model.transformer import Transformer
    from spherelm.saved import Saved

KINDS = ("length", "tasks")


@dataclass(frozen=True)
class EvalFlags:
    """Loss, perplexity and bits per byte on any text, or on the validation set of the run's data.

    See also `spherelm eval length --help` and `spherelm eval tasks --help`.
    """

    run: tyro.conf.Positional[str]
    """A run directory (its newest checkpoint), a checkpoint, or an exported folder."""
    text: tuple[str, ...] = ()
    """Text files to evaluate on, each a document. Unset: the validation set of the run's data."""
    data: str | None = None
    """A folder of the run's data, where it has moved; tokens of another tokenizer are refused."""
    context: int | None = None
    """Tokens the model sees at once. Unset: those it was trained with."""
    batch_size: int = 8
    """Windows in a forward pass."""
    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is."""
    dtype: DTypeName = "auto"
    """Precision of matrix products; auto: bf16 on CUDA, fp32 elsewhere."""
    tokenizer: str | None = None
    """A tokenizer, where the run has none of its own."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    if argv and argv[0] in KINDS:
        module = importlib.import_module(f"spherelm.cli.eval_{argv[0]}")
        return int(module.main(argv[1:]))
    flags = parse(EvalFlags, argv, "eval")
    cpu_isa.before_products(flags.dtype, flags.device)

    require_int("--batch-size", flags.batch_size)
    if flags.context is not None:
        require_int("--context", flags.context)
    if flags.text and flags.data is not None:
        raise UserError("--text and --data exclude each other; give one of them")

    from spherelm.saved import reading

    measure = _on_texts if flags.text else _on_validation
    report = reading(flags.run, lambda saved: measure(saved, flags))
    if flags.json:
        print(json.dumps({"run": flags.run, **report}))
    else:
        _print_table(flags.run, report)
    return 0


def open_model(
    saved: Saved, device: str, dtype: DTypeName
) -> tuple[Transformer, AbstractContextManager[Any]]:
    """The model on its device, and the context in which its products have their precision."""
    import torch

    from spherelm.ops.device import choose_device
    from spherelm.saved import read_weights, to_device

    chosen = choose_device(device)
    model = to_device(read_weights(saved), chosen).eval()
    bf16 = inference_dtype(dtype, chosen.type) == torch.bfloat16
    return model, torch.autocast(chosen.type, torch.bfloat16, enabled=bf16)


def _on_texts(saved: Saved, flags: EvalFlags) -> dict[str, Any]:
    from spherelm.eval.text import read_text, text_loss
    from spherelm.saved import find_tokenizer

    tokenizer = find_tokenizer(saved, flags.tokenizer)
    texts = [read_text(path) for path in flags.text]
    model, products = _open(saved, flags)
    with products:
        measured = text_loss(
            model, tokenizer, texts, context=flags.context, batch_size=flags.batch_size
        )
    return {"text": list(flags.text), **dataclasses.asdict(measured)}


def _on_validation(saved: Saved, flags: EvalFlags) -> dict[str, Any]:
    from spherelm.data.loader import WindowReader, evaluation_batches
    from spherelm.eval.loss import evaluate
    from spherelm.saved import open_own_data

    run = saved.config
    dataset = open_own_data(saved, flags.data, flags.tokenizer)
    context = flags.context or run.model.context
    there_are = WindowReader(dataset.val, context).n_windows
    model, products = _open(saved, flags)
    batches = evaluation_batches(
        dataset.val,
        context=context,
        n_sequences=run.train.eval_sequences,
        batch_size=flags.batch_size,
        within_documents=run.data.within_documents,
        restart_positions=run.data.restart_positions,
        device=model.E_input.device,
    )
    with products:
        measured = evaluate(model, batches, dataset.token_bytes("val"))
    builtin = flags.data is None and run.data.path is None
    return {
        "text": "validation set",
        "data": "built-in corpus" if builtin else str(dataset.path),
        "sequences": min(run.train.eval_sequences, there_are),
        "sequences_there_are": there_are,
        "context": context,
        "loss": measured.loss,
        "perplexity": measured.perplexity,
        "bits_per_byte": measured.bits_per_byte,
        "tokens": measured.tokens,
    }


def _open(saved: Saved, flags: EvalFlags) -> tuple[Transformer, AbstractContextManager[Any]]:
    model, products = open_model(saved, flags.device, flags.dtype)
    if flags.context is not None:
        model.extend_context(flags.context)
    return model, products


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


def _print_table(run: str, report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{run} on {_what_was_read(report)}", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name in ("loss", "perplexity", "bits_per_byte", "tokens", "text_bytes"):
        value = report.get(name)
        if value is not None:
            shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
            table.add_row(name.replace("_", " "), shown)
    open_console().print(table)
