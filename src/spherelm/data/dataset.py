"""A dataset: a folder of token shards, opened for reading.

`spherelm prepare` writes `dataset.json` last, so a folder that has one is complete. nanoGPT's
folders (`train.bin` and `val.bin`, raw uint16) can be read directly.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spherelm import records
from spherelm.data.shards import DTYPES, Shard, ShardHeader, check_shard, open_shard, shard_name
from spherelm.data.tokenizer import Tokenizer, read_description
from spherelm.data.tokenizer_load import load_saved_tokenizer
from spherelm.errors import UserError, or_say

FORMAT, VERSION = "spherelm dataset", 1
MANIFEST = "dataset.json"
SPLITS = ("train", "val")
VERIFY_LIMIT = 2 << 30
"""Up to this many bytes of tokens, checksums are verified whenever a dataset is opened, which takes
about a second; above it, only on request. The sizes of files are always checked."""

COUNTED_TOGETHER = 1 << 22
"""Tokens counted at a time: each takes eight bytes."""

LLM_C_MAGIC, LLM_C_HEADER = 20240520, 1024
"""The int32 that shards of llm.c and modded-nanogpt begin with (as two tokens it would be 55432 and
308), and the length of their header in bytes."""


@dataclass(frozen=True, repr=False)
class TokenSplit:
    """The training or validation part: the tokens of its shards, one after another."""

    name: str
    shards: tuple[Shard, ...]
    fingerprint: str
    """Changes with any token."""

    def __repr__(self) -> str:
        return f"<{self.name}: {self.n_tokens:,} tokens>"

    @property
    def n_tokens(self) -> int:
        return sum(len(shard.tokens) for shard in self.shards)

    @property
    def n_bytes(self) -> int | None:
        """UTF-8 bytes of the text; None if unknown (nanoGPT's files)."""
        total = sum(shard.header.text_bytes for shard in self.shards)
        return total if all(shard.starts is not None for shard in self.shards) else None


@dataclass(eq=False, repr=False)
class TokenDataset:
    """Tokens for training and validation, and the tokenizer that made them."""

    path: Path
    splits: dict[str, TokenSplit]
    known_vocab_size: int | None
    tokenizer_fingerprint: str | None = None
    """Of the tokenizer that made the tokens; None if unknown (nanoGPT's files)."""
    _token_bytes: dict[str, NDArray[np.float64] | None] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        """One line, since there may be millions of documents."""
        parts = ", ".join(f"{name} {split.n_tokens:,}" for name, split in self.splits.items())
        made_by = self.tokenizer_fingerprint or "unknown"
        return f"<TokenDataset {self.path}: {parts} tokens, tokenizer {made_by}>"

    @property
    def train(self) -> TokenSplit:
        return self._split("train")

    @property
    def val(self) -> TokenSplit:
        return self._split("val")

    @property
    def has_val(self) -> bool:
        """Whether there is a validation part; data made with `--val-fraction 0` has none."""
        return "val" in self.splits

    def _split(self, name: str) -> TokenSplit:
        if name not in self.splits:
            raise UserError(f"{self.path} has no {name} split; prepare it with --val-fraction 0.01")
        return self.splits[name]

    @cached_property
    def vocab_size(self) -> int:
        """The tokenizer's; if that is unknown, one more than the largest token."""
        if self.known_vocab_size is not None:
            return self.known_vocab_size
        return 1 + max(
            int(shard.tokens.max()) for split in self.splits.values() for shard in split.shards
        )

    @property
    def vocab_size_notes(self) -> tuple[str, ...]:
        """Notes for when `vocab_size` determines the model's; none if it is known."""
        if self.known_vocab_size is not None:
            return ()
        return (
            f"{self.path} does not say how many ids its tokenizer has, so the model gets "
            f"{self.vocab_size}, one more than the largest there; if it has more, set "
            "model.vocab_size, or the model cannot be used with it",
        )

    @property
    def fingerprint(self) -> str:
        """Changes with any token of any split; a run resumes only on the same data."""
        return _digest(f"{name} {split.fingerprint}" for name, split in self.splits.items())

    def check_tokenizer(self) -> None:
        """Refuse a damaged or wrong tokenizer in the folder; cheaper than loading it."""
        folder = self.path / "tokenizer"
        if folder.is_dir():
            found = read_description(folder).get("fingerprint", self.tokenizer_fingerprint)
            self._check_made_by(found)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that was copied into the folder when the data was prepared."""
        folder = self.path / "tokenizer"
        if not folder.is_dir():
            raise UserError(f"{self.path} has no tokenizer; name one with --tokenizer")
        tokenizer = load_saved_tokenizer(folder)
        self._check_made_by(tokenizer.fingerprint)
        return tokenizer

    def _check_made_by(self, fingerprint: str | None) -> None:
        if fingerprint != self.tokenizer_fingerprint:
            folder = self.path / "tokenizer"
            raise records.damaged(folder, "it is not the tokenizer that made the tokens")

    def token_bytes(self, name: str) -> NDArray[np.float64] | None:
        """UTF-8 bytes of text that each id stands for in a split; None if unknown.

        They are the tokenizer's, times a factor that makes them add up to the bytes of the split:
        1, unless a tokenizer adds to texts, leaves something out, or changes them.
        """
        if name not in self._token_bytes:
            self._token_bytes[name] = self._count_token_bytes(self._split(name))
        return self._token_bytes[name]

    def _count_token_bytes(self, split: TokenSplit) -> NDArray[np.float64] | None:
        if split.n_bytes is None:
            return None
        try:
            lengths = self.tokenizer().token_bytes
        except UserError:  # there is none, or the package that reads it is not installed
            return None
        counts = np.zeros(len(lengths), np.int64)
        for shard in split.shards:
            for start in range(0, len(shard.tokens), COUNTED_TOGETHER):
                part = shard.tokens[start : start + COUNTED_TOGETHER]
                counts += np.bincount(part, minlength=len(lengths))
        return lengths.astype(np.float64) * (split.n_bytes / max(1, int(counts @ lengths)))


def open_folder(
    path: str | Path, verify: bool | None = None, vocab_size: int | None = None
) -> TokenDataset:
    """Open a prepared folder, or one of nanoGPT.

    `verify`: whether to verify checksums; by default, up to `VERIFY_LIMIT`. `vocab_size` only
    matters for nanoGPT's folders, which do not state theirs.
    """
    if not isinstance(path, (str, Path)):
        raise UserError(f"data is named by its folder, not {path!r}")
    path = Path(path)
    if (path / MANIFEST).is_file():
        return _open_prepared(path, verify)
    if (path / "train.bin").is_file():
        return _open_nanogpt(path, vocab_size)
    if path.is_file():
        raise UserError(f"{path} is a file; make tokens of its text with `spherelm prepare`")
    if not path.is_dir():
        raise UserError(
            f"data folder {path} does not exist; name it with --data, or make it with "
            "`spherelm prepare`"
        )
    if (path / "prepare.json").is_file():
        raise UserError(f"{path} is not complete; run the same `spherelm prepare` again to finish")
    raise UserError(
        f"{path} holds no tokens (neither {MANIFEST} nor train.bin); make them of texts with "
        "`spherelm prepare`"
    )


def _open_prepared(path: Path, verify: bool | None) -> TokenDataset:
    file = path / MANIFEST
    manifest = records.read_format(file, FORMAT, VERSION)
    tokenizer = records.field(manifest, "tokenizer", dict, file)
    vocab_size = records.field(tokenizer, "vocab_size", int, file)
    tokenizer_fingerprint = records.field(tokenizer, "fingerprint", str, file)
    splits = {}
    totals = records.field(manifest, "splits", dict, file)
    for name in totals:
        if name not in SPLITS:
            raise records.damaged(file, f"{name!r} is neither {' nor '.join(SPLITS)}")
        total = records.field(totals, name, dict, file)
        n_shards = records.field(total, "shards", int, file)
        if n_shards < 1:
            raise records.damaged(file, f"its {name} split has no shards")
        shards = tuple(open_shard(path, shard_name(name, i)) for i in range(n_shards))
        splits[name] = TokenSplit(name, shards, _digest(map(_identity, shards)))
        _check_totals(file, splits[name], total, tokenizer_fingerprint)
    if "train" not in splits:
        raise records.damaged(file, "it has no training data")
    shards = tuple(shard for split in splits.values() for shard in split.shards)
    if verify is None:
        verify = sum(shard.tokens.nbytes for shard in shards) <= VERIFY_LIMIT
    if verify:
        with ThreadPoolExecutor() as pool:  # crc32 releases the GIL
            list(pool.map(lambda shard: check_shard(path, shard), shards))
    return TokenDataset(path, splits, vocab_size, tokenizer_fingerprint)


def _check_totals(
    file: Path, split: TokenSplit, total: Mapping[str, Any], tokenizer_fingerprint: str
) -> None:
    """Refuse a `dataset.json` whose totals are not those of the shards' headers."""
    found = _totals([shard.header for shard in split.shards])
    for name in ("tokens", "documents", "text_bytes"):
        if records.field(total, name, int, file) != found[name]:
            raise records.damaged(file, f"its {split.name} shards have other counts ({name})")
    for shard in split.shards:
        of = (shard.header.split, shard.header.tokenizer_fingerprint)
        if of != (split.name, tokenizer_fingerprint):
            header = file.with_name(f"{shard.name}.json")
            raise records.damaged(header, "its split or tokenizer is not that of dataset.json")


def _identity(shard: Shard) -> str:
    h = shard.header
    return f"{h.dtype} {h.count} {h.tokens_crc32} {h.starts_crc32} {h.tokenizer_fingerprint}"


def _open_nanogpt(path: Path, vocab_size: int | None) -> TokenDataset:
    """`train.bin` and `val.bin`. `meta.pkl`, if any, is ignored: unpickling runs code."""
    splits = {}
    for name in SPLITS:
        file = path / f"{name}.bin"
        if file.is_file():
            tokens = read_nanogpt(file)
            header = ShardHeader(name, "uint16", len(tokens), 0, 0, "unknown", "", 0, 0)
            shard = Shard(file.name, header, tokens, None)
            splits[name] = TokenSplit(name, (shard,), _sampled_digest(tokens))
    return TokenDataset(path, splits, vocab_size)


def read_nanogpt(file: Path) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Map one of nanoGPT's `.bin` files into memory."""
    size = file.stat().st_size
    if size == 0 or size % 2:
        raise UserError(f"{file} is not a nanoGPT file of uint16 tokens: it has {size} bytes")
    with or_say(f"cannot read {file}"):
        tokens = np.asarray(np.memmap(file, DTYPES["uint16"], mode="r"))
    if size > LLM_C_HEADER and int(tokens[:2].view("<i4")[0]) == LLM_C_MAGIC:
        raise UserError(
            f"{file} begins with the header of llm.c and modded-nanogpt, not with tokens; "
            f"take them alone: tail -c +{LLM_C_HEADER + 1} {shlex.quote(str(file))} > train.bin"
        )
    return tokens


def _sampled_digest(tokens: np.ndarray[Any, np.dtype[np.uint16]]) -> str:
    """Identifies a file by its size and 64 windows of it; not a checksum."""
    window = 1 << 15
    last = max(0, len(tokens) - window)
    digest = hashlib.blake2b(str(len(tokens)).encode(), digest_size=16)
    for start in np.linspace(0, last, 64 if last else 1).astype(np.int64):
        digest.update(tokens[start : start + window].tobytes())
    return digest.hexdigest()


def _digest(parts: Any) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def write_manifest(
    folder: Path, tokenizer: Tokenizer, shards: Mapping[str, Sequence[ShardHeader]], **fields: Any
) -> dict[str, Any]:
    """Write `dataset.json`, which marks the folder as complete; returns its content."""
    splits = {name: _totals(headers) for name, headers in shards.items() if headers}
    manifest = {
        "tokenizer": {
            "name": tokenizer.name,
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "end_of_document": tokenizer.end_of_document,
        },
        "splits": splits,
        **fields,
    }
    records.write(folder / MANIFEST, {"format": FORMAT, "version": VERSION, **manifest})
    return manifest


def _totals(headers: Sequence[ShardHeader]) -> dict[str, Any]:
    tokens = sum(header.count for header in headers)
    text_bytes = sum(header.text_bytes for header in headers)
    return {
        "shards": len(headers),
        "dtype": headers[0].dtype,
        "tokens": tokens,
        "documents": sum(header.documents for header in headers),
        "text_bytes": text_bytes,
        "bytes_per_token": text_bytes / tokens,
    }
