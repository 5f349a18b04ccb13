"""The end of a text: held out for validation if no document is held out by its hash.

This is the case with one text, or a handful. The share is counted in characters, not in pieces:
a text of 130 KB has two pieces, so it would be half of it, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from spherelm.data.documents import Piece
from spherelm.errors import UserError

REMEMBERED = 256
"""The most pieces remembered to be cut; with more, whole pieces are fine enough."""
ENOUGH = 1 << 14
"""The fewest characters to hold out, unless they are more than a tenth of the text."""
WHOLE = 1 << 12
"""Pieces up to this size are never cut, but held out whole, except for the first."""
LEAST = 64
"""The fewest characters that are worth a cut."""


class Place(NamedTuple):
    """Where the end begins."""

    piece: int
    character: int
    """In that piece; 0: all of it."""


class Remembered:
    """The pieces of a text, as long as they are few and none is held out by its hash."""

    def __init__(self) -> None:
        self.pieces: list[Piece] | None = []

    def add(self, piece: Piece, split: str) -> bool:
        """Take the next piece; returns whether it, and all before it, are remembered."""
        if split != "train" or self.pieces is None or len(self.pieces) == REMEMBERED:
            self.pieces = None
            return False
        self.pieces.append(piece)
        return True


def find_end(pieces: Sequence[Piece], fraction: float) -> Place:
    """Where the last `fraction` of a text begins, or a little before."""
    sizes = [len(piece.text) for piece in pieces]
    wanted = left = max(round(fraction * sum(sizes)), min(sum(sizes) // 10, ENOUGH))
    for i in reversed(range(len(pieces))):
        if i > 0 and sizes[i] <= left:
            left -= sizes[i]
            continue
        if i + 1 < len(pieces):  # some are held out already; for a little more, no cut is needed
            little = max(LEAST, wanted // 4) if pieces[i + 1].starts else LEAST
            if left < little:
                return Place(i + 1, 0)
        if i > 0 and sizes[i] <= WHOLE:
            return Place(i, 0)
        if left >= LEAST:
            return Place(i, _cut(pieces[i].text, left))
    raise UserError(
        f"the input is one document of {sizes[0]:,} characters, too short to hold out a part of "
        f"it, which needs {10 * LEAST}; give more text, --val FILE, or --val-fraction 0 for no "
        "validation"
    )


def split_at(piece: Piece, character: int) -> list[Piece]:
    """Split a piece in two; the document continues from the first to the second."""
    head = Piece(piece.text[:character], piece.starts, ends=False)
    return [head, Piece(piece.text[character:], False, piece.ends)]


def before_the_end(stream: Iterable[tuple[Piece, str]], fraction: float) -> Iterator[Piece]:
    """The pieces to train on: neither those held out by their hash nor the end.

    The end of a text of many pieces is included, since it is not known in advance.
    """
    remembered = Remembered()
    for piece, split in stream:
        kept = remembered.pieces or ()
        if fraction and remembered.add(piece, split):
            continue
        yield from kept
        if split == "train":
            yield piece
    if fraction and remembered.pieces:
        end = find_end(remembered.pieces, fraction)
        yield from remembered.pieces[: end.piece]
        if end.character:
            yield split_at(remembered.pieces[end.piece], end.character)[0]


def _cut(text: str, left: int) -> int:
    """A place shortly before the last `left` characters: the last end of a paragraph, else of a
    line, else of a word, else anywhere."""
    high = max(1, len(text) - left)
    low = max(0, high - left)
    for ending in (r"\n[ \t\r]*\n\s*", r"\n", r"(?<=\S)(?=[ \t])"):
        found = [match.end() for match in re.finditer(ending, text[low:high])]
        if found and low + found[-1] > 0:
            return low + found[-1]
    return high
