"""`spherelm export`: a trained model as a folder that Hugging Face's tools load."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import tyro

from spherelm.console import show
from spherelm.flags import parse


@dataclass(frozen=True)
class ExportFlags:
    """Write a Hugging Face folder: nGPT with its own classes, GPT as a plain Llama.

    spherelm export runs/mine --out mine-hf
    """

    run: tyro.conf.Positional[str]
    """A run directory (its newest checkpoint), a checkpoint, or an exported folder."""
    out: str
    """The folder to make."""
    to: Literal["hf"] = "hf"
    """The form to export to: hf for Hugging Face transformers."""
    fold: bool = False
    """Multiply s_u, s_nu and s_z into the matrices, for engines with a head of their own."""
    tokenizer: str | None = None
    """A tokenizer, where the run has none of its own."""
    force: bool = False
    """Replace the export that --out holds; a folder with anything else is refused."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(ExportFlags, argv, "export")

    from spherelm.data.tokenizer_load import load_tokenizer
    from spherelm.hf.export import export_to_hf

    out = export_to_hf(
        flags.run, flags.out, tokenizer=flags.tokenizer, fold=flags.fold, force=flags.force
    )
    # The only kind of SentencePiece tokenizer that transformers handles exactly is Llama's.
    if not getattr(load_tokenizer(out), "is_like_llamas", True):
        print(
            f"note: transformers encodes many texts differently from this tokenizer; encode them "
            f"with the package sentencepiece, from {out / 'tokenizer.model'}",
            file=sys.stderr,
        )
    result = {"run": flags.run, "out": str(out)}
    return show(result, flags.json, lambda: print(f"exported to {out}"))
