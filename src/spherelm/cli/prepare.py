"""`spherelm prepare`: text, JSONL, Parquet or a Hugging Face dataset to token shards."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from spherelm.console import open_console, print_table, show
from spherelm.data.prepare import PrepareConfig, PrepareSettings, Report, prepare
from spherelm.data.prepare import Progress as Done
from spherelm.flags import parse


@dataclass(frozen=True)
class PrepareFlags(PrepareSettings):
    """Turn text into token shards that `spherelm train --data` reads.

    Started again with the same options, it continues where it stopped.

        spherelm prepare books/ notes.jsonl.gz --out tokens
        spherelm prepare books/ --train-tokenizer 8000 --out tokens
    """

    inputs: tyro.conf.Positional[tuple[str, ...]]
    """Files (text, .jsonl, .parquet, nanoGPT's .bin; .gz, .bz2, .xz and .zst too), folders, globs,
    - for stdin, or hf:NAME[:CONFIG[:SPLIT]] such as hf:Skylion007/openwebtext."""
    out: str
    """Folder to write."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(PrepareFlags, argv, "prepare")

    settings = {f.name: getattr(flags, f.name) for f in fields(PrepareSettings)}
    config = PrepareConfig(flags.inputs, Path(flags.out), **settings)
    with _progress() as report:
        manifest, was_complete = prepare(config, report)
    result = {"out": flags.out, "was_complete": was_complete, **manifest}
    return show(result, flags.json, lambda: _print(flags, manifest, was_complete))


@contextmanager
def _progress() -> Iterator[Report]:
    """A progress bar on stderr with rate and time left; plain lines if it is not a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[made]}"),
        TimeRemainingColumn(),
    )
    console = open_console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task("reading", total=None, made="")

        def report(done: Done) -> None:
            task = bar.tasks[0]
            if task.description != done.stage:  # each stage counts from where it begins
                bar.remove_task(task.id)
                bar.add_task(done.stage, total=done.size, completed=done.read, made="")
                return
            elapsed, made = task.elapsed, ""
            if done.tokens and elapsed:
                rate = done.text_bytes / elapsed / 1e6
                made = f"{done.tokens / 1e6:,.1f} M tokens, {rate:.1f} MB/s"
            bar.update(task.id, completed=done.read, total=done.size, made=made)

        yield report


def _lines() -> Report:
    """For logs: a line on stderr every minute, so nothing for a quick job."""
    said = time.monotonic()

    def report(done: Done) -> None:
        nonlocal said
        if (now := time.monotonic()) - said < 60:
            return
        said = now
        share = f", {100 * done.read / done.size:.0f} % of the input" if done.size else ""
        made = f", {done.tokens / 1e6:,.1f} M tokens" if done.tokens else ""
        print(f"{done.stage}{share}{made}", file=sys.stderr, flush=True)

    return report


def _print(flags: PrepareFlags, manifest: dict[str, Any], was_complete: bool) -> None:
    tokenizer = manifest["tokenizer"]
    title = f"{flags.out}: {tokenizer['name']}, {tokenizer['vocab_size']:,} ids"
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
        caption="; ".join(_remarks(flags, manifest)) or None,
    )


def _remarks(flags: PrepareFlags, manifest: dict[str, Any]) -> Iterator[str]:
    """Remarks on results that might surprise."""
    train, val = (manifest["splits"].get(split, {}) for split in ("train", "val"))
    if train.get("documents") and val.get("documents") == 0:
        yield "no document was held out whole: val is the end of the last one"
    asked, ids = flags.train_tokenizer, manifest["tokenizer"]["vocab_size"]
    if asked is not None and ids < asked:
        yield f"the text is too little for {asked:,} tokens: the tokenizer has {ids:,}"
