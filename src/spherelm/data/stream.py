"""All inputs as one stream of pieces, each with its split, and a digest of what has gone by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from spherelm.data.documents import Piece
from spherelm.data.sources import Position, Source


class PieceStream:
    """Iterates over (piece, split) of training inputs and then of validation inputs.

    A document of a training input goes to validation when the hash of its first piece, read as a
    number in [0, 1), is below `fraction`: the same text always goes the same way, in whatever
    file it comes.
    """

    def __init__(self, train: list[Source], val: list[Source], fraction: float) -> None:
        self.train, self.val, self.fraction = train, val, fraction
        self.position = 0
        """Bytes of the input files that have been read."""
        self.count = {"train": 0, "val": 0}
        """Pieces of each split so far."""
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def size(self) -> int | None:
        """Bytes of all input files; None where that cannot be known."""
        sizes = [source.size for source in (*self.train, *self.val)]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def stamps(self) -> list[list[int] | None]:
        """When each input file was last written or otherwise changed; None where none can be known.

        The second date of each moves with every change of the content and cannot be set back.
        """
        return [source.stamp for source in (*self.train, *self.val)]

    @property
    def pieces_read(self) -> int:
        return sum(self.count.values())

    @property
    def digest(self) -> str:
        """Digest of all pieces so far."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[tuple[Piece, str]]:
        split, done = "train", 0
        for source, given in (*((s, "train") for s in self.train), *((s, "val") for s in self.val)):
            at = Position()
            for piece in source.pieces(at):
                own_hash = hashlib.blake2b(piece.text.encode(), digest_size=8).digest()
                self._digest.update(own_hash + bytes((piece.starts, piece.ends)))
                if piece.starts:
                    held_out = int.from_bytes(own_hash, "big") < self.fraction * 2**64
                    split = "val" if held_out else given
                self.count[split] += 1
                self.position = done + at.bytes
                yield piece, split
            done += source.size or 0
            self.position = done
