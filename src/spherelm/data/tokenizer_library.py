"""Tokenizers of the `tokenizers` library: its JSON files, GPT-2's two files, or trained here.

Text is always text: special tokens that are spelled out in a document are encoded like any other
text, and no marks are put before or after it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spherelm import records
from spherelm.data import hub
from spherelm.data.byte_level import END_OF_TEXT
from spherelm.data.tokenizer import DESCRIPTION, FileTokenizer, bytes_of_piece, fingerprint_of
from spherelm.errors import UserError, first_line, or_say, package

USUAL_ENDS = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
"""The vocabulary and the merges of GPT-2's BPE: OpenAI's names and Hugging Face's."""


class LibraryTokenizer(FileTokenizer):
    """A tokenizer given by the text of its `tokenizer.json`."""

    kind = "tokenizers"

    def __init__(self, content: str, name: str, end_of_document: str | None = None) -> None:
        library = _library()
        with _in_one_line(f"{name} is not a tokenizer of `tokenizers`"):
            self._tokenizer = library.Tokenizer.from_str(content)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.content, self.name = content, name
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(vocabulary.values(), default=0)
        self.end = _find_end(name, vocabulary, end_of_document)
        self.end_of_document: int = vocabulary[self.end]
        self._tokenizer.add_special_tokens([self.end])  # in some files it is not special
        self.fingerprint = fingerprint_of(self.kind, content, self.end)

    @classmethod
    def load(
        cls, spec: str | Path, end_of_document: str | None = None, name: str | None = None
    ) -> LibraryTokenizer:
        """From a file, a folder, or a name on the Hugging Face hub; see `load_tokenizer`."""
        path = Path(spec)
        if path.is_dir():
            return cls._from_folder(path, end_of_document, name or path.resolve().name)
        if path.is_file():
            if (pair := _gpt2_pair(path)) is not None:
                return cls(_gpt2_content(*pair), name or path.stem, end_of_document)
            return cls(_read(path), name or path.stem, end_of_document)
        if path.suffix in (".json", ".bpe", ".txt") or not hub.may_be_a_name(str(spec)):
            close = hub.nearest_here(str(spec))
            hint = "" if close is None else f"; did you mean {close!r}?"
            raise UserError(f"tokenizer {spec} does not exist{hint}")
        library, name = _library(), str(spec)
        refusal = (
            f"tokenizer {name!r} is not a file, nor can it be loaded from the Hugging Face hub"
        )
        with hub.asked(lambda why: f"{refusal} ({why}); give a file or folder"):
            content = library.Tokenizer.from_pretrained(name).to_str()
        return cls(content, name, end_of_document)

    @classmethod
    def _from_folder(cls, folder: Path, end_of_document: str | None, name: str) -> LibraryTokenizer:
        if (folder / "tokenizer.json").is_file():
            end_of_document = end_of_document or _configured_end(folder / "tokenizer_config.json")
            return cls(_read(folder / "tokenizer.json"), name, end_of_document)
        for path in sorted(folder.iterdir()):
            if (pair := _gpt2_pair(path)) is not None:
                return cls(_gpt2_content(*pair), name, end_of_document)
        own = folder / "tokenizer"
        if (own / DESCRIPTION).is_file():  # a run, or a folder of tokens
            raise UserError(f"{folder} itself holds no tokenizer; did you mean {str(own)!r}?")
        raise UserError(
            f"{folder} holds no tokenizer: tokenizer.json, tokenizer.model, or GPT-2's "
            "encoder.json and vocab.bpe"
        )

    @property
    def what_decides_ids(self) -> tuple[dict[str, Any], str]:
        """Everything that matters to us: not the marks around a text, truncation or padding."""
        none = dict.fromkeys(("post_processor", "truncation", "padding"))
        return {**self._described(), **none}, self.end

    def _described(self) -> dict[str, Any]:
        values: dict[str, Any] = records.parse_value(self.content, f"tokenizer {self.name}")
        return values

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        described = self._described()
        decoder = json.dumps(described.get("decoder"))
        counts = np.zeros(self.vocab_size, np.int64)
        for token, i in self._tokenizer.get_vocab(with_added_tokens=False).items():
            if "ByteLevel" in decoder:  # one character for each byte
                counts[i] = len(token)
            else:
                piece = token.removeprefix("##") if "WordPiece" in decoder else token
                counts[i] = bytes_of_piece(piece)
        for i, added in self._tokenizer.get_added_tokens_decoder().items():
            counts[i] = 0 if added.special else len(added.content.encode())
        return counts

    def encode(self, text: str) -> list[int]:
        with _in_one_line(f"tokenizer {self.name} cannot encode a text"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        # The fast variant does not compute which characters each token came from.
        with _in_one_line(f"tokenizer {self.name} cannot encode a text"):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        kept = [int(i) for i in ids if i != self.end_of_document]
        text: str = self._tokenizer.decode(kept, skip_special_tokens=True)
        return text

    def without_marks(self) -> LibraryTokenizer:
        """The same ids, without a post-processor that would put marks around a text."""
        processor = self._described().get("post_processor")
        if processor is None or processor.get("type") == "ByteLevel":
            return self
        plain = LibraryTokenizer(json.dumps(self.what_decides_ids[0]), self.name, self.end)
        plain.fingerprint = self.fingerprint
        return plain


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> LibraryTokenizer:
    """A byte-level BPE, GPT-2's kind, learned from `texts`; id 0 ends a document.

    It has `vocab_size` ids, or fewer if nothing is left to merge; its name says how many.
    """
    check_size(vocab_size)
    library = _library()
    tokenizer = _byte_level(library.models.BPE())
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return LibraryTokenizer(tokenizer.to_str(), f"bpe-{tokenizer.get_vocab_size()}", END_OF_TEXT)


def check_size(vocab_size: int) -> None:
    """Refuse a tokenizer that is too small to be trained, or a missing library."""
    smallest = len(_library().pre_tokenizers.ByteLevel.alphabet()) + 1
    if vocab_size < smallest:
        raise UserError(
            f"--train-tokenizer must be at least {smallest}, the bytes and the end of a document, "
            f"not {vocab_size}"
        )


def _library() -> Any:
    return package("tokenizers", "this tokenizer")


@contextlib.contextmanager
def _in_one_line(what: str) -> Iterator[None]:
    """Turn any error of the library into one line: `what`, and why.

    It raises bare Exceptions, and if its Rust code panics, something that is not even one.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what}: {first_line(error)}") from None


def _byte_level(model: Any) -> Any:
    library = _library()
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _gpt2_pair(path: Path) -> tuple[Path, Path] | None:
    """Vocabulary and merges, if `path` is one of such a pair, like `gpt2-encoder.json`."""
    for pair in GPT2_FILES:
        for name in pair:
            if path.name.endswith(name):
                prefix = path.name.removesuffix(name)
                vocabulary, merges = (path.with_name(prefix + part) for part in pair)
                if vocabulary.is_file() and merges.is_file():
                    return vocabulary, merges
    return None


def _gpt2_content(vocabulary: Path, merges: Path) -> str:
    library = _library()
    with _in_one_line(f"{vocabulary} and {merges.name} are not GPT-2's BPE"):
        model = library.models.BPE.from_file(str(vocabulary), str(merges))
    tokenizer = _byte_level(model)
    tokenizer.add_special_tokens([END_OF_TEXT])
    content: str = tokenizer.to_str()
    return content


def _find_end(name: str, vocabulary: dict[str, int], asked: str | None) -> str:
    if asked is not None and asked not in vocabulary:
        raise UserError(f"tokenizer {name} has no token {asked!r} to end documents with")
    for token in (asked, *USUAL_ENDS):
        if token in vocabulary:
            return token
    raise UserError(
        f"tokenizer {name} has none of the usual tokens that end a document; "
        "name the one it uses with --end-of-document"
    )


def _configured_end(config: Path) -> str | None:
    """`eos_token` of a Hugging Face folder."""
    if not config.is_file():
        return None
    token = records.read(config).get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _read(path: Path) -> str:
    try:
        with or_say(f"cannot read tokenizer {path}"):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"tokenizer {path} is not JSON") from None
