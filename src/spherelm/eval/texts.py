"""Texts to evaluate on, each with a name: files, compressed or not, and folders of them.

They are read as `spherelm prepare` reads them: .jsonl and .parquet, too, and a line with
<|endoftext|> ends a document. All are read before any model, so that an unreadable one is reported
at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spherelm.data.documents import Piece
from spherelm.data.sources import Position, Source, find_sources
from spherelm.errors import UserError, or_say


@dataclass(frozen=True)
class NamedText:
    """The documents of one name."""

    name: str
    documents: tuple[str, ...]

    @property
    def text_bytes(self) -> int:
        return sum(len(document.encode()) for document in self.documents)


def read_texts(names: Sequence[str], field: str = "text") -> list[NamedText]:
    """The texts of files, folders and globs; `field` holds the text in .jsonl and .parquet."""
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"the text {name} is named twice; name each text once")
        _check_no_tokens(name, "name their folder with --data")
    found = [(name, find_sources([name], field)) for name in names]  # looks at all of them
    return [NamedText(name, _documents(name, sources)) for name, sources in found]


def read_beginning(name: str, most: int, field: str = "text") -> str:
    """The first document of a text, or its first `most` characters; the rest is not read."""
    _check_no_tokens(name, "give the text that they were made from")
    text = ""
    for piece in _pieces(find_sources([name], field)):
        text += piece.text
        if piece.ends or len(text) >= most:
            return text[:most]
    raise UserError(f"the text {name} is empty; name one that has something in it")


def _check_no_tokens(name: str, remedy: str) -> None:
    if Path(name).suffix == ".bin":
        raise UserError(f"{name} holds tokens, not text; {remedy}")


def _documents(name: str, sources: Sequence[Source]) -> tuple[str, ...]:
    documents: list[str] = []
    parts: list[str] = []
    for piece in _pieces(sources):
        parts.append(piece.text)
        if piece.ends:
            documents.append("".join(parts))
            parts = []
    if not documents:
        raise UserError(f"the text {name} is empty; there is nothing to evaluate on")
    return tuple(documents)


def _pieces(sources: Iterable[Source]) -> Iterator[Piece]:
    return (piece for source in sources for piece in source.pieces(Position()))


def short_names(names: Sequence[str]) -> list[str]:
    """The last part of each name, or the whole name if others have the same last part."""
    short = [Path(name).name or name for name in names]
    return [
        each if short.count(each) == 1 else name for name, each in zip(names, short, strict=True)
    ]


def read_text(path: str | Path, what: str = "text") -> str:
    """Read a UTF-8 file as `prepare` does; `what` describes it in errors."""
    try:
        with or_say(f"cannot read the {what} {path}"):
            return Path(path).read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text in UTF-8") from None
