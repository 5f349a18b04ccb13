"""The model card of an export: what the model is, how it was trained, its losses, its use."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spherelm import __version__, records
from spherelm.config import RunConfig
from spherelm.config_io import to_toml
from spherelm.model.flops import count_parameters
from spherelm.runs.metrics import read_metrics

LOSS_ROWS = 8
"""Number of measured losses in the card, evenly spread and including the last."""

TRANSFORMERS = "5.20"
"""The oldest version that the classes exported with an nGPT support."""

ABOUT = {
    "ngpt": (
        "a normalized Transformer: every row of every matrix and every hidden state is a unit "
        "vector, and each block moves the hidden state on the sphere by learned eigen learning "
        "rates (nGPT, arXiv:2410.01131)"
    ),
    "gpt": (
        "a Transformer with RMSNorm, RoPE and SwiGLU: the baseline of the nGPT paper "
        "(arXiv:2410.01131), in the form of Llama"
    ),
}
TO_TRAIN_FURTHER = {
    "plain": (
        "To train further, call `model.retract_()` after each optimizer step (with "
        "`transformers.Trainer`, in a callback's `on_optimizer_step`) and use no weight decay."
    ),
    "folded": (
        "The scales s_u, s_nu and s_z are folded into the matrices, for inference; to train "
        "further, export without `--fold`."
    ),
}


def model_card(name: str, run: RunConfig, losses: Sequence[dict[str, Any]], folded: bool) -> str:
    """README.md of an exported folder."""
    quoted = json.dumps(name)
    trust = ", trust_remote_code=True" if run.model.arch == "ngpt" else ""
    needs = f"With transformers {TRANSFORMERS} or newer:\n\n" if run.model.arch == "ngpt" else ""
    parts = [
        f"---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [{run.model.arch}, "
        "spherelm]\n---",
        f"# {_as_text(name)}",
        f"{count_parameters(run.model).total / 1e6:,.1f}M parameters; {ABOUT[run.model.arch]}. "
        f"Trained and exported with spherelm {__version__}.",
        f"## Use\n\n{needs}```python\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f"model = AutoModelForCausalLM.from_pretrained({quoted}{trust})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({quoted}{trust})\n"
        'prompt = tokenizer("def main(", return_tensors="pt")\n'
        "print(tokenizer.decode(model.generate(**prompt, max_new_tokens=64)[0]))\n```",
    ]
    if run.model.arch == "ngpt":
        parts.append(TO_TRAIN_FURTHER["folded" if folded else "plain"])
    parts.append(f"## Measured losses\n\n{_loss_table(losses)}")
    parts.append(f"## Training configuration\n\n```toml\n{to_toml(run)}```")
    return "\n\n".join(parts) + "\n"


def _as_text(name: str) -> str:
    """A name escaped for Markdown, on one line."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&@:-])", r"\\\1", shown)


def _loss_table(losses: Sequence[dict[str, Any]]) -> str:
    if not losses:
        return "None were recorded with this model."
    if len(losses) > LOSS_ROWS:
        last = len(losses) - 1
        losses = [losses[round(i * last / (LOSS_ROWS - 1))] for i in range(LOSS_ROWS)]
    rows = [
        f"| {r['step']:,} | {r['tokens']:,} | {r['val_loss']:.4f} | "
        f"{format(r['val_bits_per_byte'], '.4f') if 'val_bits_per_byte' in r else '-'} |"
        for r in losses
    ]
    head = "| step | tokens | validation loss (nats per token) | bits per byte |\n|---|---|---|---|"
    return "\n".join([head, *rows])


def read_losses(metrics: Path, until: int, began: int | None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that hold a validation loss, up to a step.

    `began` is the step that the run started from, or None if an old run did not record it.
    """
    steps = None if began is None else (began + 1, until)
    lines = [line for line in read_metrics(metrics, steps) if line["step"] <= until]
    return [check_losses(line, metrics) for line in lines if "val_loss" in line]


def check_losses(line: object, where: Path) -> dict[str, Any]:
    """Refuse a line of losses that the card could not show."""
    if not isinstance(line, dict):
        raise records.damaged(where, "a line of losses is not a JSON object")
    for name in ("step", "tokens"):
        records.field(line, name, int, where)
    for name in ("val_loss", "val_bits_per_byte"):
        records.field({"val_bits_per_byte": 0.0, **line}, name, (int, float), where)
    return line
