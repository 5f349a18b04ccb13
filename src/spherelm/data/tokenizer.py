"""Tokenizers: their interface, and the one that needs no package: bytes.

Kinds that need a package of `spherelm[data]` have their own files; `tokenizer_load` finds the right
one for a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spherelm import durable, records
from spherelm.data.byte_level import END_OF_TEXT, byte_tokenizer_json
from spherelm.errors import or_say

FORMAT, VERSION = "spherelm tokenizer", 1
DESCRIPTION = "spherelm-tokenizer.json"
"""The file of a saved tokenizer that tells its kind and how documents end."""
KINDS = {"tokenizers": "tokenizer.json", "sentencepiece": "tokenizer.model"}
"""The kinds other than bytes, and the file of each."""


class Tokenizer(Protocol):
    """Text to ids and back."""

    name: str
    vocab_size: int
    """One more than the largest id."""
    end_of_document: int
    """The id that ends every document; text never encodes to it."""
    fingerprint: str
    """Changes with anything that would change the ids of a text."""

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        """UTF-8 bytes of text that each id stands for, 0 for special tokens: (vocab_size,)"""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any that mark its start or end."""

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text; like `encode`, but faster."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; `end_of_document` leaves no trace."""

    def save(self, folder: Path) -> None:
        """Write everything that `load_tokenizer(folder)` needs."""


class ByteTokenizer:
    """The 256 bytes of UTF-8, and id 256 for the end of a document."""

    name = "bytes"
    vocab_size = 257
    end_of_document = 256
    fingerprint = "bytes-257"

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        return (np.arange(self.vocab_size) < 256).astype(np.int64)

    @property
    def what_decides_ids(self) -> tuple[dict[str, Any], str]:
        """The byte tokenizer as exported to transformers, which reads the `tokenizers` format."""
        return byte_tokenizer_json(), END_OF_TEXT

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def save(self, folder: Path) -> None:
        save_tokenizer(folder, "bytes")


class FileTokenizer(Tokenizer):
    """A tokenizer of a package, which is fully described by one file."""

    kind: str
    """One of `KINDS`."""
    content: Any
    """The text or the bytes of the file, as the constructor takes it."""
    end: str
    """The text of the token that ends a document."""

    def save(self, folder: Path) -> None:
        content = self.content.encode() if isinstance(self.content, str) else self.content
        about = {"name": self.name, "end_of_document": self.end, "fingerprint": self.fingerprint}
        save_tokenizer(folder, self.kind, content, **about)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str, str]]:
        return type(self), (self.content, self.name, self.end)


def read_description(folder: Path) -> dict[str, Any]:
    """The description that `Tokenizer.save` wrote in `folder`; refused if the file has changed."""
    file = folder / DESCRIPTION
    description = records.read_format(file, FORMAT, VERSION)
    kind = records.field(description, "kind", str, file)
    if kind == "bytes":
        return {**description, "fingerprint": ByteTokenizer.fingerprint}
    if kind not in KINDS:
        raise records.damaged(file, f"there is no tokenizer of the kind {kind!r}")
    for name in ("name", "end_of_document"):
        records.field(description, name, str, file)
    content = folder / KINDS[kind]
    if "crc32" in description:  # old versions wrote none
        records.field(description, "fingerprint", str, file)
        with or_say(f"cannot read tokenizer {content}"):
            found = durable.checksum(content)
        if found != description["crc32"]:
            raise records.damaged(content, f"its checksum is not that of {DESCRIPTION}")
    return description


def bytes_of_piece(piece: str) -> int:
    """UTF-8 bytes of a SentencePiece piece: ▁ is a space, <0x0A> one byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return 1
    return len(piece.replace("\u2581", " ").encode())


def same_ids(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers give every text the same ids.

    True even after an export, which drops the post-processor that would put marks around a text
    (`hf.tokenizer_files`), and after transformers has saved the file in its own form.
    """
    if one.fingerprint == other.fingerprint:
        return True
    contents = [getattr(tokenizer, "what_decides_ids", None) for tokenizer in (one, other)]
    return contents[0] is not None and contents[0] == contents[1]


def save_tokenizer(folder: Path, kind: str, content: bytes | None = None, **values: Any) -> None:
    """Write a tokenizer: its file, and the description for `load_tokenizer`."""
    folder.mkdir(parents=True, exist_ok=True)
    if content is not None:
        durable.write_bytes(folder / KINDS[kind], content)
        values["crc32"] = durable.checksum(folder / KINDS[kind])
    about = {"format": FORMAT, "version": VERSION, "kind": kind, **values}
    records.write(folder / DESCRIPTION, about)


def fingerprint_of(*parts: bytes | str) -> str:
    """A digest of the parts of a tokenizer."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
