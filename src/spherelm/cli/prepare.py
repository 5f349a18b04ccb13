"""`spherelm prepare`: text, JSONL, Parquet or a Hugging Face dataset to token shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from spherelm.console import open_console, print_table, show
from spherelm.flags import parse

if TYPE_CHECKING:
    from spherelm.data.prepare import Report


@dataclass(frozen=True)
class PrepareFlags:
    """Turn text into token shards that `spherelm train --data` reads.

    Started again with the same options, it continues where it stopped.
    """

    inputs: tyro.conf.Positional[tuple[str, ...]]
    """Files (text, .jsonl, .parquet, nanoGPT's .bin; .gz, .bz2 and .xz too), folders, globs, - for
    stdin, or hf:NAME[:CONFIG[:SPLIT]] such as hf:Skylion007/openwebtext."""
    out: str
    """Folder to write."""
    tokenizer: str | None = None
    """bytes (the default), gpt2 or another name on the Hugging Face hub, a tokenizers JSON file or
    folder, GPT-2's encoder.json, or a SentencePiece .model."""
    train_tokenizer: int | None = None
    """Train a byte-level BPE with this many tokens on the text instead."""
    end_of_document: str | None = None
    """Token that ends a document, where the tokenizer has none of the usual ones."""
    field: str = "text"
    """Field or column that holds the text."""
    val_fraction: float | None = None
    """Share of documents held out for validation, by their hash; 0.01 unless --val is given."""
    val: tuple[str, ...] = ()
    """Inputs of their own for validation."""
    dtype: str = "auto"
    """uint16 or uint32; auto: the smallest that holds the tokenizer's ids."""
    shard_tokens: int = 1 << 26
    """Tokens of a shard, about."""
    workers: int | None = None
    """Processes to tokenize in. Unset: all cores."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(PrepareFlags, argv, "prepare")

    from pathlib import Path

    from spherelm.data.prepare import PrepareConfig, prepare

    values = dict(vars(flags))
    del values["json"]
    values["out"] = Path(flags.out)
    with _progress() as report:
        manifest, was_complete = prepare(PrepareConfig(**values), report)
    result = {"out": flags.out, "was_complete": was_complete, **manifest}
    return show(result, flags.json, lambda: _print(flags.out, manifest, was_complete))


@contextmanager
def _progress() -> Iterator[Report]:
    """A bar on stderr with the rate and the time left, where stderr is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from spherelm.data import prepare

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[made]}"),
        TimeRemainingColumn(),
    )
    console = open_console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("reading", total=None, made="")

        def report(done: prepare.Progress) -> None:
            elapsed = bar.tasks[0].elapsed
            made = ""
            if done.tokens and elapsed:
                rate = done.text_bytes / elapsed / 1e6
                made = f"{done.tokens / 1e6:,.1f} M tokens, {rate:.1f} MB/s"
            bar.update(
                task, description=done.stage, completed=done.read, total=done.size, made=made
            )

        yield report


def _print(out: str, manifest: dict[str, Any], was_complete: bool) -> None:
    tokenizer = manifest["tokenizer"]
    title = f"{out}: {tokenizer['name']}, {tokenizer['vocab_size']:,} ids"
    print_table(
        f"{title} (was complete)" if was_complete else title,
        [
            (
                split,
                *(f"{total[name]:,}" for name in ("documents", "tokens", "text_bytes")),
                f"{total['bytes_per_token']:.3f}",
                f"{total['shards']:,}",
            )
            for split, total in manifest["splits"].items()
        ],
        ("split", "documents", "tokens", "bytes of text", "bytes per token", "shards"),
    )
