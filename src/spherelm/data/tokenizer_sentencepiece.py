"""SentencePiece models, such as LLaMA-2's `tokenizer.model`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spherelm.data.tokenizer import FileTokenizer, bytes_of_piece, fingerprint_of
from spherelm.errors import UserError, or_say, package


class SentencePieceTokenizer(FileTokenizer):
    """A tokenizer given by the bytes of its `.model` file."""

    kind = "sentencepiece"

    def __init__(self, content: bytes, name: str, end_of_document: str | None = None) -> None:
        sentencepiece = package("sentencepiece", "a SentencePiece model")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError:
            raise UserError(f"{name} is not a SentencePiece model") from None
        self.content, self.name = content, name
        self.vocab_size: int = self._processor.get_piece_size()
        self.end_of_document = self._find_end(end_of_document)
        self.end = self._processor.id_to_piece(self.end_of_document)
        self.fingerprint = fingerprint_of(self.kind, content, str(self.end_of_document))

    @classmethod
    def load(
        cls, path: Path, end_of_document: str | None = None, name: str | None = None
    ) -> SentencePieceTokenizer:
        """From a `.model` file, or the folder of a `tokenizer.model`."""
        file = path / "tokenizer.model" if path.is_dir() else path
        with or_say(f"cannot read tokenizer {file}"):
            return cls(file.read_bytes(), name or path.resolve().stem, end_of_document)

    def _find_end(self, asked: str | None) -> int:
        """The id of the piece asked for, else the model's own end of sentence."""
        if asked is None:
            end: int = self._processor.eos_id()
            if end >= 0:
                return end
            raise UserError(
                f"tokenizer {self.name} has no end of sentence; "
                "name the piece that ends a document with --end-of-document"
            )
        end = self._processor.piece_to_id(asked)
        if self._processor.id_to_piece(end) != asked:
            raise UserError(f"tokenizer {self.name} has no piece {asked!r} to end documents with")
        return end

    @property
    def is_like_llamas(self) -> bool:
        """Whether it is a BPE (its scores are ranks) with byte fallback that keeps all spaces."""
        pieces, ids = self._processor, range(self.vocab_size)
        ranks = all(pieces.get_score(i).is_integer() for i in ids)
        whole = any(map(pieces.is_byte, ids)) and self.decode(self.encode("a  b")) == "a  b"
        return ranks and whole

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        pieces = self._processor
        counts = [
            0
            if pieces.is_control(i) or pieces.is_unused(i) or i == self.end_of_document
            else bytes_of_piece(pieces.id_to_piece(i))
            for i in range(self.vocab_size)
        ]
        return np.array(counts, np.int64)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        # One thread: `prepare` runs one process per core.
        batch = self._processor.encode(list(texts), num_threads=1)
        return [np.array(ids, np.uint32) for ids in batch]

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._processor.decode([int(i) for i in ids if i != self.end_of_document])
        return text
