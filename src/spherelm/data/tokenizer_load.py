"""Loads a tokenizer of any kind, by its name or from where it was saved.

Kinds that need a package of `spherelm[data]` are imported only when used.
"""

from __future__ import annotations

from pathlib import Path

from spherelm.data.tokenizer import DESCRIPTION, KINDS, ByteTokenizer, Tokenizer, read_description
from spherelm.errors import UserError


def load_tokenizer(spec: str | Path, end_of_document: str | None = None) -> Tokenizer:
    """The tokenizer that `spec` names.

    - `bytes`;
    - `gpt2`, or any other name on the Hugging Face hub, from its cache or the network;
    - a folder that `Tokenizer.save` wrote;
    - a `tokenizers` JSON file, or a folder with `tokenizer.json`;
    - GPT-2's two files (`encoder.json` and `vocab.bpe`, or `vocab.json` and `merges.txt`, with any
      prefix): their folder, or one of them with the other beside it;
    - a SentencePiece `.model` file, or a folder with `tokenizer.model`.

    `end_of_document` is the token that ends a document, if the tokenizer has none of the usual.
    """
    if not isinstance(spec, (str, Path)) or not str(spec).strip():
        raise UserError(f"a tokenizer is named by a word or a path, not {spec!r}")
    if str(spec) == "bytes":
        return ByteTokenizer()
    path = Path(spec)
    if (path / DESCRIPTION).is_file():
        return load_saved_tokenizer(path, end_of_document)
    return _load_foreign(spec, end_of_document)


def load_saved_tokenizer(folder: Path, end_of_document: str | None = None) -> Tokenizer:
    """The tokenizer that `Tokenizer.save` wrote to `folder`, and nothing else."""
    description = read_description(folder)
    kind = description["kind"]
    if kind == "bytes":
        return ByteTokenizer()
    name, end = description["name"], description["end_of_document"]
    tokenizer = _load_foreign(folder / KINDS[kind], end_of_document or end, name)
    if end_of_document in (None, end) and "fingerprint" in description:
        tokenizer.fingerprint = description["fingerprint"]
    return tokenizer


def _load_foreign(
    spec: str | Path, end_of_document: str | None, name: str | None = None
) -> Tokenizer:
    path = Path(spec)
    if path.suffix == ".model" or (
        (path / "tokenizer.model").is_file() and not (path / "tokenizer.json").is_file()
    ):
        from spherelm.data.tokenizer_sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer.load(path, end_of_document, name)

    from spherelm.data.tokenizer_library import LibraryTokenizer

    return LibraryTokenizer.load(spec, end_of_document, name)
