"""Tokenizing on all cores: processes encode batches of pieces, and tokens come back in order."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from spherelm.data.documents import Piece
from spherelm.data.shards import DTYPES, Encoded
from spherelm.data.tokenizer import Tokenizer
from spherelm.lifeline import or_died, spawned

T = TypeVar("T")


def encode_pieces(tokenizer: Tokenizer, dtype: str, pieces: Sequence[Piece]) -> Encoded:
    """Tokenize pieces, and add the end-of-document token where a document ends."""
    parts = tokenizer.encode_batch([piece.text for piece in pieces])
    lengths = np.array([len(ids) for ids in parts], np.int64)
    ends = np.cumsum(lengths + np.array([piece.ends for piece in pieces], np.int64))
    tokens = np.full(ends[-1], tokenizer.end_of_document, DTYPES[dtype])
    begins = np.concatenate([[0], ends[:-1]])
    for begin, length, ids in zip(begins.tolist(), lengths.tolist(), parts, strict=True):
        tokens[begin : begin + length] = ids
    starts = begins[[piece.starts for piece in pieces]]
    text_bytes = np.array([len(piece.text.encode()) for piece in pieces], np.int64)
    return Encoded(tokens, starts, ends, text_bytes)


def join(parts: Sequence[Encoded]) -> Encoded:
    """Concatenate."""
    offsets = np.cumsum([0, *(len(part.tokens) for part in parts)])
    return Encoded(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.starts + o for part, o in zip(parts, offsets, strict=False)]),
        np.concatenate([part.ends + o for part, o in zip(parts, offsets, strict=False)]),
        np.concatenate([part.text_bytes for part in parts]),
    )


def cut_after(whole: Encoded, n_pieces: int) -> tuple[Encoded, Encoded]:
    """The first `n_pieces` pieces, and the rest."""
    n, (tokens, starts, ends, text_bytes) = n_pieces, whole
    at = ends[n - 1] if n else 0
    first = starts < at
    return (
        Encoded(tokens[:at], starts[first], ends[:n], text_bytes[:n]),
        Encoded(tokens[at:], starts[~first] - at, ends[n:] - at, text_bytes[n:]),
    )


def encode_batches(
    tokenizer: Tokenizer, dtype: str, batches: Iterable[tuple[T, list[Piece]]], workers: int
) -> Iterator[tuple[T, Encoded]]:
    """Encode labelled batches; results come in the order of the batches.

    A single worker is this process. Otherwise each worker is a process whose tokenizer uses one
    thread: this scales better than the threads of `tokenizers`, which share a cache.
    """
    if workers == 1:
        for label, batch in batches:
            yield label, encode_pieces(tokenizer, dtype, batch)
        return
    idle: SimpleQueue[Connection] = SimpleQueue()

    def encode(batch: list[Piece]) -> Encoded:
        worker = idle.get()
        try:
            with or_died("a process that tokenizes", "continue with fewer --workers"):
                worker.send(batch)
                encoded: Encoded | Exception = worker.recv()
        finally:
            idle.put(worker)
        if isinstance(encoded, Exception):
            raise encoded
        return encoded

    waiting: deque[tuple[T, Future[Encoded]]] = deque()
    with contextlib.ExitStack() as at_the_end:  # last in, first out
        threads = at_the_end.enter_context(ThreadPoolExecutor(workers))
        for _ in range(workers):
            idle.put(at_the_end.enter_context(spawned(_encode_in_worker, tokenizer, dtype)))
        at_the_end.callback(threads.shutdown, wait=False, cancel_futures=True)
        for label, batch in batches:
            waiting.append((label, threads.submit(encode, batch)))
            while len(waiting) > 3 * workers or (waiting and waiting[0][1].done()):
                label, future = waiting.popleft()
                yield label, future.result()
        while waiting:
            label, future = waiting.popleft()
            yield label, future.result()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _encode_in_worker(there: Connection, tokenizer: Tokenizer, dtype: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for Windows; elsewhere `spawned` does it
    while True:
        pieces = there.recv()
        try:
            there.send(encode_pieces(tokenizer, dtype, pieces))
        except Exception as error:
            there.send(error)
