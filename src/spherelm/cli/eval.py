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
from spherelm.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from spherelm.exchange.load import Loaded, Saved
    from spherelm.model.transformer import Transformer

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

    from spherelm.exchange.load import Loaded, find_saved, find_tokenizer

    saved = find_saved(flags.run)
    tokenizer = find_tokenizer(saved, flags.tokenizer)
    model, products = open_model(saved, flags.device, flags.dtype)
    loaded = Loaded(model, tokenizer, saved.config)
    if flags.context is not None:
        if flags.context < 1:
            raise UserError(f"--context must be at least 1, not {flags.context}")
        loaded.model.extend_context(flags.context)
    with products:
        report = _on_texts(loaded, flags) if flags.text else _on_validation(loaded, flags)
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

    from spherelm.exchange.load import read_weights
    from spherelm.train.device import choose_device

    chosen = choose_device(device)
    model = read_weights(saved).to(chosen).eval()
    bf16 = inference_dtype(dtype, chosen.type) == torch.bfloat16
    return model, torch.autocast(chosen.type, torch.bfloat16, enabled=bf16)


def _on_texts(loaded: Loaded, flags: EvalFlags) -> dict[str, Any]:
    from spherelm.eval.text import read_text, text_loss

    texts = [read_text(path) for path in flags.text]
    measured = text_loss(
        loaded.model,
        loaded.tokenizer,
        texts,
        context=flags.context,
        batch_size=flags.batch_size,
    )
    return {"text": list(flags.text), **dataclasses.asdict(measured)}


def _on_validation(loaded: Loaded, flags: EvalFlags) -> dict[str, Any]:
    from spherelm.data.dataset import open_dataset
    from spherelm.data.loader import evaluation_batches
    from spherelm.eval.loss import evaluate

    run = loaded.config
    dataset = open_dataset(run.data.path, vocab_size=run.model.vocab_size)
    batches = evaluation_batches(
        dataset.val,
        context=flags.context or run.model.context,
        n_sequences=run.train.eval_sequences,
        batch_size=flags.batch_size,
        within_documents=run.data.within_documents,
        restart_positions=run.data.restart_positions,
        device=loaded.model.E_input.device,
    )
    measured = evaluate(loaded.model, batches, dataset.token_bytes("val"))
    return {
        "text": "validation set",
        "loss": measured.loss,
        "perplexity": measured.perplexity,
        "bits_per_byte": measured.bits_per_byte,
        "tokens": measured.tokens,
    }


def _print_table(run: str, report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    text = report["text"] if isinstance(report["text"], str) else ", ".join(report["text"])
    table = Table(title=f"{run} on {text}", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name in ("loss", "perplexity", "bits_per_byte", "tokens", "text_bytes"):
        value = report.get(name)
        if value is not None:
            shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
            table.add_row(name.replace("_", " "), shown)
    Console().print(table)
