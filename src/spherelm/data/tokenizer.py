"""Tokenizers: one interface, and the one that needs nothing: bytes.

`load_tokenizer` finds the right kind for what the user named. The kinds that need a package of
`spherelm[data]` live in files of their own and are imported when asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spherelm import durable
from spherelm.data.shards import read_json
from spherelm.errors import UserError

FORMAT, VERSION = "spherelm tokenizer", 1
DESCRIPTION = "spherelm-tokenizer.json"
"""File of a saved tokenizer that says which kind it is and how documents end."""


class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""

    @property
    def end_of_document(self) -> int:
        """The id that ends every document; text never encodes to it."""

    @property
    def fingerprint(self) -> str:
        """Changes with anything that would change the ids of a text."""

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        """UTF-8 bytes of text that each id stands for, 0 for marks: (vocab_size,)"""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any that mark its start or end."""

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text; what `encode` gives, faster."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; `end_of_document` leaves no trace."""

    def save(self, folder: Path) -> None:
        """Write all that `load_tokenizer(folder)` needs."""


class ByteTokenizer:
    """The 256 bytes of UTF-8, and id 256 for the end of a document."""

    name = "bytes"
    vocab_size = 257
    end_of_document = 256
    fingerprint = "bytes-257"

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        return (np.arange(self.vocab_size) < 256).astype(np.int64)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def save(self, folder: Path) -> None:
        save_description(folder, kind="bytes")


def load_tokenizer(spec: str | Path, end_of_document: str | None = None) -> Tokenizer:
    """The tokenizer that `spec` names.

    - `bytes`;
    - `gpt2`, or any other name on the Hugging Face hub, from its cache or the network;
    - a folder that `Tokenizer.save` wrote;
    - a `tokenizers` JSON file, or a folder with `tokenizer.json`;
    - GPT-2's two files (`encoder.json` and `vocab.bpe`, or `vocab.json` and `merges.txt`, with any
      prefix): their folder, or one of them with the other beside it;
    - a SentencePiece `.model` file, or a folder with `tokenizer.model`.

    `end_of_document` is the token that ends a document, where the tokenizer has none of the usual.
    """
    if str(spec) == "bytes":
        return ByteTokenizer()
    path, name = Path(spec), None
    if (path / DESCRIPTION).is_file():
        description = read_json(path / DESCRIPTION, FORMAT, VERSION)
        if description.get("kind") == "bytes":
            return ByteTokenizer()
        name = description.get("name")
        end_of_document = end_of_document or description.get("end_of_document")
    if path.suffix == ".model" or (
        (path / "tokenizer.model").is_file() and not (path / "tokenizer.json").is_file()
    ):
        from spherelm.data.tokenizer_sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer.load(path, end_of_document, name)

    from spherelm.data.tokenizer_library import LibraryTokenizer

    return LibraryTokenizer.load(spec, end_of_document, name)


def bytes_of_piece(piece: str) -> int:
    """UTF-8 bytes of a piece of SentencePiece's kind: ▁ is a space, <0x0A> one byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return 1
    return len(piece.replace("\u2581", " ").encode())


def save_description(folder: Path, **values: Any) -> None:
    """Write the file that tells `load_tokenizer` what the folder holds."""
    folder.mkdir(parents=True, exist_ok=True)
    durable.write_json(folder / DESCRIPTION, {"format": FORMAT, "version": VERSION, **values})


def fingerprint_of(*parts: bytes | str) -> str:
    """A digest of what a tokenizer is made of."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def missing_package(package: str, purpose: str) -> UserError:
    """What to say when a package of the `data` extra is not installed."""
    return UserError(f"{purpose} needs the package {package}: pip install 'spherelm[data]'")
