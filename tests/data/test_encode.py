"""Texts encoded by several processes: in order, and one that dies is told at once."""

import os
import signal
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from spherelm.data.documents import Piece
from spherelm.data.encode import encode_batches
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.errors import UserError

DYING, FAILING = "die now", "fail now"


class Mortal(ByteTokenizer):
    """Bytes, but for a text that ends the process and one that cannot be encoded."""

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        if DYING in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAILING in texts:
            raise ZeroDivisionError(FAILING)
        return super().encode_batch(texts)


def batches(*texts: str) -> list[tuple[int, list[Piece]]]:
    return [(i, [Piece(text, starts=True, ends=True)]) for i, text in enumerate(texts)]


def test_batches_come_back_in_order_with_any_number_of_workers() -> None:
    given = batches(*(str(i) * (1 + 5000 * (i % 3)) for i in range(20)))
    alone = list(encode_batches(Mortal(), "uint16", given, 1))
    together = list(encode_batches(Mortal(), "uint16", given, 3))
    assert [label for label, _ in together] == list(range(20))
    for (_, one), (_, other) in zip(alone, together, strict=True):
        assert np.array_equal(one.tokens, other.tokens)


def test_no_more_is_read_than_workers_have_to_do() -> None:
    """A text of any size: what waits is held in memory."""
    read: list[int] = []
    given = (read.append(label) or (label, batch) for label, batch in batches(*["text"] * 500))
    encoded = encode_batches(Mortal(), "uint16", given, 2)
    for label, _ in encoded:
        assert len(read) <= label + 1 + 3 * 2 + 1


def test_a_worker_that_is_killed_is_told_in_one_line() -> None:
    given = batches("one", "two", DYING, "three", "four")
    with pytest.raises(UserError, match=r"a process that tokenizes has died.*fewer --workers"):
        list(encode_batches(Mortal(), "uint16", given, 2))


def test_what_goes_wrong_in_a_worker_goes_wrong_here() -> None:
    with pytest.raises(ZeroDivisionError, match=FAILING):
        list(encode_batches(Mortal(), "uint16", batches("one", FAILING, "two"), 2))
