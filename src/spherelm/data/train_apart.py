"""A tokenizer trained in a process of its own.

The library trains in code that heeds no Ctrl-C, for minutes where the text is long. A process can
be ended.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

from spherelm.data.lifeline import Lifeline, deaf
from spherelm.data.tokenizer_library import LibraryTokenizer, check_size, train_tokenizer
from spherelm.errors import UserError


def train_apart(texts: Iterator[str], vocab_size: int) -> LibraryTokenizer:
    """What `train_tokenizer` makes, of texts that are read here."""
    check_size(vocab_size)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with contextlib.closing(Lifeline(context)) as lifeline, ours:
        process = context.Process(target=_train, args=(lifeline, theirs, vocab_size), daemon=True)
        with deaf():
            process.start()
        theirs.close()
        try:
            for text in texts:
                with _or_died():
                    ours.send(text)
            with _or_died():
                ours.send(None)
                tokenizer: LibraryTokenizer = ours.recv()
        finally:
            process.kill()
            process.join()
    return tokenizer


def _train(lifeline: None, there: Connection, vocab_size: int) -> None:
    there.send(train_tokenizer(iter(there.recv, None), vocab_size))


@contextlib.contextmanager
def _or_died() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError):
        raise UserError(
            "the process that trained the tokenizer has died, perhaps for want of memory; "
            "name less text, or a tokenizer with --tokenizer"
        ) from None
