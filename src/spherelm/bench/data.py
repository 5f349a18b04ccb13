"""`spherelm bench data`: the loader on one core, and `prepare` against the bare tokenizer library.

The loader's tokens come from a warm page cache and arrive as int64 tokens and targets. The bare
library encodes documents that are already in memory and discards the results; `prepare` reads the
same text from a file, tokenizes it, and writes shards with checksums. The two take turns, so that
both see the same conditions on the machine, and the best round of each counts.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from spherelm.bench.flags import DataFlags as Flags
from spherelm.bench.report import Report, Table, measuring
from spherelm.data.encode import available_cores
from spherelm.data.loader import Loader
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.sources import find_sources
from spherelm.data.tokenizer_library import LibraryTokenizer, train_tokenizer
from spherelm.eval.texts import read_texts

SHAPES = ((256, 64), (1024, 32), (4096, 8))
"""Context and batch size of the loader's rounds."""
BARE = ("encode_batch", "encode_batch_fast")
"""The library's methods to encode many texts; both are multithreaded."""
VOCAB_SIZE = 16384
"""Of the tokenizer that is trained if none is given."""


@dataclass(frozen=True)
class _Cost:
    """Wall-clock and CPU time; for one busy core on an otherwise idle machine they agree."""

    seconds: float
    cpu_seconds: float
    """Of this process, its threads and the child processes it waited for."""


def run(flags: Flags) -> Report:
    """Measure the loader, and `prepare` beside the bare library."""
    if flags.text is not None:  # unreadable input should fail before the first round
        find_sources([flags.text])
    if flags.tokenizer is not None:
        LibraryTokenizer.load(flags.tokenizer)
    loader, prepared = measure_loader(flags.seconds), measure_prepare(flags)
    return Report(
        _machine(),
        {"loader": loader, "prepare": prepared},
        [_loader_table(loader), _prepare_table(prepared)],
        f"prepare reaches {prepared['share_of_bare']:.0%} of {prepared['fastest_bare']}",
    )


def _machine() -> dict[str, Any]:
    return {
        "cores": available_cores(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "tokenizers")},
    }


def measure_loader(seconds: float) -> list[dict[str, Any]]:
    """Tokens per second of the loader, including its thread, on one core."""
    split = open_dataset(verify=True).train  # verifying reads everything, which warms the cache
    rows = []
    with _one_core():
        for context, batch_size in SHAPES:
            measuring(f"the loader at context {context:,}")
            for within_documents in (False, True):
                loader = Loader(
                    split,
                    context=context,
                    batch_size=batch_size,
                    seed=0,
                    within_documents=within_documents,
                )
                cost = _cost_per_call(loader.__next__, seconds)
                loader.close()
                rows.append(
                    {
                        "context": context,
                        "batch_size": batch_size,
                        "within_documents": within_documents,
                        "tokens_per_second": context * batch_size / cost.seconds,
                        "tokens_per_cpu_second": context * batch_size / cost.cpu_seconds,
                    }
                )
    return rows


def _cost_per_call(call: Callable[[], object], seconds: float) -> _Cost:
    for _ in range(5):
        call()
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        call()
        count += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return _Cost(wall / count, cpu / count)


@contextmanager
def _one_core() -> Iterator[None]:
    """Bind this process, threads that it starts included, to one core (where that can be done)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure_prepare(flags: Flags) -> dict[str, Any]:
    """Bytes of text per second of `prepare` and of the bare library, on the same cores."""
    workers = flags.workers or available_cores()
    os.environ["RAYON_NUM_THREADS"] = str(workers)  # the library's threads; read once
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = folder / "builtin.txt" if flags.text is None else Path(flags.text)
        if flags.text is None:
            whole = "\n<|endoftext|>\n".join(_builtin_documents())
            text.write_text(whole, encoding="utf-8", newline="\n")
        (named,) = read_texts([str(text)])
        documents = list(named.documents)
        size = sum(len(document.encode()) for document in documents)
        if flags.tokenizer is not None:
            tokenizer = LibraryTokenizer.load(flags.tokenizer)
        else:
            tokenizer = train_tokenizer(iter(_builtin_documents()), VOCAB_SIZE)
        tokenizer.save(folder / "tokenizer")
        best: dict[str, _Cost] = {}
        for i in range(flags.rounds):
            config = PrepareConfig(
                (str(text),),
                folder / f"out{i}",
                tokenizer=str(folder / "tokenizer"),
                workers=workers,
            )
            calls: dict[str, Callable[[], object]] = {"prepare": partial(prepare, config)}
            for name in BARE:
                calls[name] = partial(_encode_bare, _bare(tokenizer), name, documents)
            for name, call in calls.items():
                measuring(f"{name}, round {i + 1} of {flags.rounds}")
                cost = _cost(call)
                best[name] = min(cost, best.get(name, cost), key=lambda c: c.seconds)
    bare = min(BARE, key=lambda name: best[name].seconds)
    return {
        "text": "built-in corpus" if flags.text is None else text.name,
        "text_bytes": size,
        "documents": len(documents),
        "tokenizer": tokenizer.name,
        "vocab_size": tokenizer.vocab_size,
        "workers": workers,
        "bytes_per_second": {name: size / cost.seconds for name, cost in best.items()},
        "cpu_seconds": {name: cost.cpu_seconds for name, cost in best.items()},
        "fastest_bare": bare,
        "share_of_bare": best[bare].seconds / best["prepare"].seconds,
    }


def _cost(call: Callable[[], object]) -> _Cost:
    wall, before = time.perf_counter(), os.times()
    call()
    wall, after = time.perf_counter() - wall, os.times()
    return _Cost(wall, sum(after[:4]) - sum(before[:4]))


def _bare(tokenizer: LibraryTokenizer) -> Any:
    """The library's own tokenizer, new for each round so that its cache is not warm."""
    import tokenizers

    return tokenizers.Tokenizer.from_str(tokenizer.content)


def _encode_bare(bare: Any, method: str, documents: list[str]) -> None:
    for i in range(0, len(documents), 1000):
        getattr(bare, method)(documents[i : i + 1000], add_special_tokens=False)


def _builtin_documents() -> list[str]:
    dataset = open_dataset()
    tokenizer = dataset.tokenizer()
    shard = dataset.train.shards[0]
    assert shard.starts is not None
    return [tokenizer.decode(ids.tolist()) for ids in np.split(shard.tokens, shard.starts[1:])]


def _loader_table(rows: list[dict[str, Any]]) -> Table:
    columns = ["context", "batch", "within documents", "M tokens/s", "of CPU time"]
    shown = [
        [
            f"{row['context']:,}",
            f"{row['batch_size']}",
            "yes" if row["within_documents"] else "no",
            *(f"{row[f'tokens_per_{u}'] / 1e6:,.0f}" for u in ("second", "cpu_second")),
        ]
        for row in rows
    ]
    return Table("loader, one core, warm page cache", columns, shown)


def _prepare_table(p: dict[str, Any]) -> Table:
    title = (
        f"{p['text']}, {p['text_bytes'] / 1e6:.1f} MB, {p['tokenizer']}, {p['workers']} processes"
    )
    shown = [
        [name, f"{rate / 1e6:.2f}", f"{p['cpu_seconds'][name]:.1f}"]
        for name, rate in p["bytes_per_second"].items()
    ]
    return Table(title, ["", "MB/s", "CPU seconds"], shown)
