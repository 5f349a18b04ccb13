"""Trains a tokenizer in a separate process.

The library's training ignores Ctrl-C, and takes minutes if the text is long. A process can be
ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.connection import Connection

from spherelm.data.tokenizer_library import LibraryTokenizer, check_size, train_tokenizer
from spherelm.lifeline import or_died, spawned


def train_apart(texts: Iterator[str], vocab_size: int) -> LibraryTokenizer:
    """Like `train_tokenizer`, in another process; the texts are read in this one."""
    check_size(vocab_size)
    who = "the process that trained the tokenizer"
    remedy = "name less text, or a tokenizer with --tokenizer"
    with spawned(_train, vocab_size) as trainer:
        for text in texts:
            with or_died(who, remedy):
                trainer.send(text)
        with or_died(who, remedy):
            trainer.send(None)
            tokenizer: LibraryTokenizer = trainer.recv()
    return tokenizer


def _train(there: Connection, vocab_size: int) -> None:
    there.send(train_tokenizer(iter(there.recv, None), vocab_size))
