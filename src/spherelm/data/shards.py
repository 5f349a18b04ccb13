"""A shard: the tokens of some documents, in three files that any tool can read.

    train-00000.tokens   the tokens, raw little-endian uint16 or uint32
    train-00000.starts   where documents start among them, raw little-endian int64
    train-00000.json     the header: dtype, counts, tokenizer, checksums

The header is written last, so a shard that has one is complete. A long document may continue from
one shard to the next, which then has tokens before its first start.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spherelm import durable, records
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError, or_say

FORMAT, VERSION = "spherelm shard", 1
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
STARTS_DTYPE = np.dtype("<i8")

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


class Encoded(NamedTuple):
    """The tokens of some pieces, one after another."""

    tokens: Tokens
    starts: NDArray[np.int64]
    """Where documents start among them."""
    ends: NDArray[np.int64]
    """Where each piece ends, its end-of-document token included."""
    text_bytes: NDArray[np.int64]
    """UTF-8 bytes of each piece."""


@dataclass(frozen=True)
class ShardHeader:
    """What `NAME.json` says about `NAME.tokens` and `NAME.starts`."""

    split: str
    """train or val."""
    dtype: str
    """uint16 or uint32."""
    count: int
    """Tokens."""
    documents: int
    """Documents that start here."""
    text_bytes: int
    """UTF-8 bytes of the text that the tokens stand for, needed for bits per byte."""
    tokenizer: str
    """Name of the tokenizer."""
    tokenizer_fingerprint: str
    """Changes with anything that would change the tokens."""
    tokens_crc32: int
    """CRC-32 of the tokens file: detects every flipped bit, at 2 GB/s."""
    starts_crc32: int
    """CRC-32 of the starts file."""
    pieces_read: int = 0
    """Pieces of the input, of all splits, up to the end of this shard: where to resume."""
    pieces_digest: str = ""
    """Digest of those pieces: resuming is refused if the input has changed."""


@dataclass(frozen=True)
class Shard:
    """A shard on disk, its tokens mapped into memory."""

    name: str
    header: ShardHeader
    tokens: Tokens
    starts: NDArray[np.int64] | None
    """Where documents start; None if unknown (nanoGPT's files)."""


def shard_name(split: str, number: int) -> str:
    return f"{split}-{number:05d}"


def smallest_dtype(vocab_size: int) -> str:
    """uint16 if it holds every id of the vocabulary, else uint32."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


def write_shard(
    folder: Path, split: str, number: int, encoded: Encoded, tokenizer: Tokenizer, **place: Any
) -> ShardHeader:
    """Write a shard of a split; `place` says how far the input was read (see `ShardHeader`)."""
    name, dtype = shard_name(split, number), encoded.tokens.dtype.name
    raw_tokens = np.ascontiguousarray(encoded.tokens, DTYPES[dtype]).view(np.uint8).data
    raw_starts = np.ascontiguousarray(encoded.starts, STARTS_DTYPE).view(np.uint8).data
    header = ShardHeader(
        split=split,
        dtype=dtype,
        count=len(encoded.tokens),
        documents=len(encoded.starts),
        text_bytes=int(encoded.text_bytes.sum()),
        tokens_crc32=zlib.crc32(raw_tokens),
        starts_crc32=zlib.crc32(raw_starts),
        tokenizer=tokenizer.name,
        tokenizer_fingerprint=tokenizer.fingerprint,
        **place,
    )
    durable.write_bytes(folder / f"{name}.tokens", raw_tokens)
    durable.write_bytes(folder / f"{name}.starts", raw_starts)
    about = {"format": FORMAT, "version": VERSION, **asdict(header)}
    records.write(folder / f"{name}.json", about)
    return header


def open_shard(folder: Path, name: str) -> Shard:
    """Map a shard into memory; the sizes of its files must be those of the header."""
    path = folder / f"{name}.json"
    values = records.read_format(path, FORMAT, VERSION)
    kinds = {f.name: int if f.type == "int" else str for f in fields(ShardHeader)}
    for field, kind in kinds.items():
        if field in values or field not in ("pieces_read", "pieces_digest"):
            records.field(values, field, kind, path)
    if strange := values.keys() - kinds.keys():
        raise records.damaged(path, f"it has the unknown field {min(strange)!r}")
    header = ShardHeader(**values)
    if header.dtype not in DTYPES:
        raise records.damaged(path, f"tokens cannot be {header.dtype!r}")
    if header.count < 1 or min(header.documents, header.text_bytes, header.pieces_read) < 0:
        raise records.damaged(path, "a count is below 0, or there are no tokens")
    tokens = _map(folder / f"{name}.tokens", DTYPES[header.dtype], header.count)
    starts = _map(folder / f"{name}.starts", STARTS_DTYPE, header.documents)
    return Shard(name, header, tokens, starts)


def check_shard(folder: Path, shard: Shard) -> None:
    """Refuse a shard whose files do not match their checksums."""
    for suffix, array, expected in (
        ("tokens", shard.tokens, shard.header.tokens_crc32),
        ("starts", shard.starts, shard.header.starts_crc32),
    ):
        assert array is not None
        if zlib.crc32(array.view(np.uint8).data) != expected:
            path = folder / f"{shard.name}.{suffix}"
            raise UserError(f"shard {path} is damaged: its checksum is not that of its header")


def _map(path: Path, dtype: np.dtype[Any], count: int) -> Any:
    expected = count * dtype.itemsize
    with or_say(f"cannot read shard {path}"):
        size = path.stat().st_size
        if size != expected:
            raise UserError(f"shard {path} is damaged: it has {size} bytes, not {expected}")
        if count == 0:  # nothing to map
            return np.empty(0, dtype)
        # A plain view: slicing a np.memmap costs a microsecond more, each time.
        return np.asarray(np.memmap(path, dtype, mode="r"))
