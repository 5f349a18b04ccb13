"""Documents, and the pieces in which they are tokenized.

A document of any length is cut into pieces of bounded size, so that a book, or a file of 50 GB
without a separator, is encoded on all cores and never held in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

SEPARATOR = "<|endoftext|>"
"""In plain text, a line with only this ends a document."""
PIECE = 1 << 16
"""Most characters of a piece."""


class Piece(NamedTuple):
    """A document, or a part of a long one."""

    text: str
    starts: bool
    """Whether a document starts here."""
    ends: bool
    """Whether it ends here: the end-of-document token follows."""


def pieces_of(document: str, starts: bool = True) -> Iterator[Piece]:
    """The pieces of a document, or of the rest of one; an empty document has none."""
    if document:
        texts = cut(document)
        last = len(texts) - 1
        for i, text in enumerate(texts):
            yield Piece(text, starts=starts and i == 0, ends=i == last)


def pieces_of_lines(lines: Iterable[str]) -> Iterator[Piece]:
    """The pieces of a plain text whose documents are separated by `SEPARATOR` lines.

    The newline before a separator belongs to it. A text without separators is one document. The
    pieces are those of `pieces_of` for each document, but found while reading.
    """
    held: list[str] = []
    size, starts = 0, True
    for line in lines:
        if line.startswith(SEPARATOR) and line.rstrip("\r\n") == SEPARATOR:
            document = "".join(held).removesuffix("\n").removesuffix("\r")
            yield from pieces_of(document, starts)
            held, size, starts = [], 0, True
            continue
        held.append(line)
        size += len(line)
        if size > 2 * PIECE + 2:  # at least three parts; further text cannot move the first cuts
            *whole, last_but_one, last = cut("".join(held))
            for text in whole:
                yield Piece(text, starts, ends=False)
                starts = False
            held = [last_but_one, last]
            size = len(last_but_one) + len(last)
    yield from pieces_of("".join(held), starts)


def cut(text: str) -> list[str]:
    """Cut a text into parts of at most `PIECE` characters; only the last may be short.

    Cuts are after a single newline, or else before a single space. There, the usual tokenizers give
    the parts the same tokens as the whole, since they never merge across the start of a word or
    line. Only a run of `PIECE`/2 characters with neither is cut anywhere. (SentencePiece models put
    a space before each part.)
    """
    parts, start = [], 0
    while len(text) - start > PIECE + 1:
        end = _place(text, start + PIECE // 2, start + PIECE)
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _place(text: str, low: int, high: int) -> int:
    """The last suitable place to cut in (low, high]."""
    for mark, after in (("\n", 1), (" ", 0)):
        end = high
        while (at := text.rfind(mark, low, end)) > low:
            if not text[at - 1].isspace() and not text[at + 1].isspace():
                return at + after
            end = at
    return high
