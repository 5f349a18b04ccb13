"""Sources of text: plain text, JSONL, Parquet, stdin, Hugging Face datasets, nanoGPT files.

A source is read as a stream of pieces, and all sources as one (`PieceStream`); all are checked
before any is read.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import hashlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import numpy as np

from spherelm import records
from spherelm.data import hub
from spherelm.data.dataset import read_nanogpt
from spherelm.data.documents import Piece, pieces_of, pieces_of_lines
from spherelm.data.tokenizer import Tokenizer
from spherelm.data.zstd import open_zstd
from spherelm.errors import UserError, first_line, or_say, package, shortened

COMPRESSION: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": open_zstd,
}
TEXT = (".txt", ".text", ".md")
JSONL = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet",)
IN_FOLDERS = (*TEXT, ".jsonl", ".ndjson", *PARQUET)
"""The files read in a folder; not .json, which may be anything and must be named."""
HUB = "hf:"

T = TypeVar("T")


class Source(Protocol):
    """One input."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int | None:
        """Bytes on disk; None if unknown."""

    @property
    def stamp(self) -> list[int] | None:
        """Its mtime and ctime in nanoseconds; None if unknown."""

    def check(self) -> None:
        """Refuse an input that cannot be read, before anything is written."""

    def pieces(self, at: Position) -> Iterator[Piece]:
        """Its documents, in pieces; updates `at` with the bytes read, out of `size`."""


@dataclass
class Position:
    """How far a source has been read, to display progress."""

    bytes: int = 0


def find_sources(
    inputs: Sequence[str], field: str = "text", bin_tokenizer: Tokenizer | None = None
) -> list[Source]:
    """The sources named by inputs of the command line, in order; files of a folder by path.

    `field` holds the text in JSONL, Parquet and datasets. `bin_tokenizer` is the tokenizer that
    made nanoGPT's `.bin` files.
    """
    sources: list[Source] = []
    for given in inputs:
        if given == "-":
            sources.append(Stdin())
        elif given.startswith(HUB):
            sources.append(HubDataset(given, field))
        else:
            sources += [_file_source(path, field, bin_tokenizer) for path in _files(given)]
    for source in sources:
        source.check()
    return sources


def _files(given: str) -> list[Path]:
    """A file, the readable files of a folder, or the matches of a glob."""
    path = Path(given)
    if path.is_dir():
        files = [p for p in _visible(path) if p.is_file() and _kind(p) in IN_FOLDERS]
        if not files:
            raise UserError(
                f"folder {given} holds no {', '.join(IN_FOLDERS)} files; name others by a glob "
                f"such as '{given.rstrip('/')}/**/*.py'"
            )
        return files
    if path.exists() or not glob.has_magic(given):
        return [path]
    files = [Path(p) for p in sorted(glob.glob(given, recursive=True)) if os.path.isfile(p)]
    if not files:
        raise UserError(f"no file matches {given}")
    return files


def _visible(folder: Path) -> list[Path]:
    """Everything inside, sorted; like a glob, without names that begin with a dot (.venv)."""
    inside = ((path, path.relative_to(folder).parts) for path in sorted(folder.rglob("*")))
    return [path for path, parts in inside if not any(part.startswith(".") for part in parts)]


def _kind(path: Path) -> str:
    """The suffix that tells a file's format, without that of a compression."""
    return (path.with_suffix("") if path.suffix in COMPRESSION else path).suffix.lower()


def _file_source(path: Path, field: str, bin_tokenizer: Tokenizer | None) -> Source:
    kind = _kind(path)
    if kind in JSONL:
        return JsonlFile(path, field)
    if kind in PARQUET:
        return ParquetFile(path, field)
    if kind == ".bin":
        return NanoGPTFile(path, bin_tokenizer)
    return TextFile(path)


@dataclass(frozen=True)
class _File:
    """What all kinds of files share."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def size(self) -> int | None:
        return self.path.stat().st_size

    @property
    def stamp(self) -> list[int] | None:
        status = self.path.stat()
        return [status.st_mtime_ns, status.st_ctime_ns]

    def check(self) -> None:
        try:
            self.name.encode()  # names of inputs are recorded, in UTF-8
        except UnicodeEncodeError:
            raise UserError(f"the name {self.name!a} is not UTF-8; rename the file") from None
        if self.path.is_fifo():  # can be opened only once: closing it would stop its writer
            return
        with or_say(f"cannot read {self.path}"), open(self.path, "rb") as raw:
            if (opener := COMPRESSION.get(self.path.suffix)) is not None:
                opener(raw, "rb")  # reads nothing, but a package may be missing


def _stdin() -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise UserError("cannot read -: stdin is closed")
    return sys.stdin.buffer


def _lines(path: Path | None, at: Position) -> Iterator[str]:
    """The lines of a UTF-8 file, compressed or not; None is stdin."""
    name = "stdin" if path is None else str(path)
    opener = None if path is None else COMPRESSION.get(path.suffix)
    number = 0
    try:
        with nullcontext(_stdin()) if path is None else open(path, "rb") as raw:
            stream = raw if opener is None else cast(BinaryIO, opener(raw, "rb"))
            # Only \n ends a line, and nothing is translated, to keep the text as it is.
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
            told = path is not None and raw.seekable()  # not a pipe, as of a shell's <(...)
            for number, line in enumerate(text, start=1):
                if told and not number % 64:
                    at.bytes = raw.tell()
                yield line.removeprefix("\ufeff") if number == 1 else line
            text.detach()  # otherwise it would close stdin
    except UnicodeDecodeError as error:
        where = f"after line {number}" if number else "in its first lines"
        raise UserError(
            f"{name} is not UTF-8 text: {error.reason} {where}; convert it, or leave it out"
        ) from None
    except Exception as error:
        # ZstdError is compared by name, since its package may not be installed.
        damage = (EOFError, OSError, lzma.LZMAError, zlib.error)
        if not isinstance(error, damage) and type(error).__name__ != "ZstdError":
            raise
        raise UserError(f"cannot read {name}: {first_line(error)}") from None


class TextFile(_File):
    """Plain text, with documents separated by `<|endoftext|>` lines."""

    def pieces(self, at: Position) -> Iterator[Piece]:
        return pieces_of_lines(_lines(self.path, at))


class Stdin:
    """Plain text from stdin, which can be read only once."""

    name = "-"
    size = stamp = None

    def check(self) -> None:
        _stdin()

    def pieces(self, at: Position) -> Iterator[Piece]:
        return pieces_of_lines(_lines(None, at))


@dataclass(frozen=True)
class JsonlFile(_File):
    """One object per line, with the text in one of its fields."""

    field: str

    def pieces(self, at: Position) -> Iterator[Piece]:
        for number, line in enumerate(_lines(self.path, at), start=1):
            if line.isspace():
                continue
            try:
                values = records.parse_value(line, self.path)
            except records.Damaged:
                raise UserError(
                    f"{self.path} line {number} is not JSON; each line must be an object"
                ) from None
            if not isinstance(values, dict):
                raise UserError(
                    f"{self.path} line {number} has no text: it must be an object, such as "
                    f'{{"{self.field}": "..."}}'
                )
            if self.field not in values:
                fields = ", ".join(values) or "none"
                raise UserError(
                    f"{self.path} line {number} has no text in the field {self.field!r}; "
                    f"name it with --field (there are: {fields})"
                )
            text = values[self.field]
            if text is None:
                continue  # as in a table, a missing text is an empty one
            if not isinstance(text, str):
                raise UserError(
                    f"{self.path} line {number} has no text in the field {self.field!r}, but "
                    f"{shortened(text)}; fix the line, or name another field with --field"
                )
            yield from pieces_of(_without_halves(text))


@dataclass(frozen=True)
class ParquetFile(_File):
    """A table with a column of texts."""

    field: str

    def check(self) -> None:
        super().check()
        self._open()

    def _open(self) -> Any:
        pyarrow = package("pyarrow", "Parquet")
        try:
            file = package("pyarrow.parquet", "Parquet").ParquetFile(self.path)
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{self.path} is not a Parquet file: {first_line(error)}") from None
        _check_column(self.name, self.field, file.schema_arrow.names)
        return file

    def pieces(self, at: Position) -> Iterator[Piece]:
        file = self._open()
        done, size = 0, self.size or 0
        batches = file.iter_batches(batch_size=1024, columns=[self.field])
        rows = (batch.column(0).to_pylist() for batch in batches)
        while (texts := _next(rows, self.name)) is not None:
            for text in texts:
                yield from _cell_pieces(text, self.field, self.name)
            done += len(texts)
            at.bytes = size * done // file.metadata.num_rows


@dataclass(frozen=True)
class HubDataset:
    """`hf:NAME[:CONFIG[:SPLIT]]`: a dataset of the Hugging Face hub or a local folder, streamed."""

    name: str
    field: str
    size = None
    stamp = None

    def check(self) -> None:
        columns = self._open().column_names
        if columns is not None:
            _check_column(self.name, self.field, columns)

    def _open(self) -> Any:
        datasets = package("datasets", "a Hugging Face dataset")
        name, _, rest = self.name.removeprefix(HUB).partition(":")
        config, _, split = rest.partition(":")
        if not name:
            raise UserError(f"{self.name} names no dataset; write hf:NAME[:CONFIG[:SPLIT]]")
        with hub.asked(lambda why: f"cannot open {self.name}: {why}", here=Path(name).exists()):
            return datasets.load_dataset(
                name, config or None, split=split or "train", streaming=True
            )

    def pieces(self, at: Position) -> Iterator[Piece]:
        rows = iter(self._open())
        while (row := _next(rows, self.name)) is not None:
            yield from _cell_pieces(row.get(self.field), self.field, self.name)


@dataclass(frozen=True)
class NanoGPTFile(_File):
    """nanoGPT's raw uint16 tokens, decoded by the tokenizer that made them."""

    tokenizer: Tokenizer | None

    def check(self) -> None:
        super().check()
        if self.tokenizer is None:
            raise UserError(
                f"{self.path} holds tokens; name the tokenizer that made them, as in "
                "--tokenizer gpt2"
            )
        largest, vocab_size = int(read_nanogpt(self.path).max()), self.tokenizer.vocab_size
        if largest >= vocab_size:
            raise UserError(
                f"{self.path} was not made by tokenizer {self.tokenizer.name}: it has the token "
                f"{largest}, out of {vocab_size}"
            )

    def pieces(self, at: Position) -> Iterator[Piece]:
        assert self.tokenizer is not None
        tokens = read_nanogpt(self.path)
        start, window = 0, 1 << 20
        while start < len(tokens):
            ends = np.flatnonzero(tokens[start : start + window] == self.tokenizer.end_of_document)
            if len(ends) == 0 and start + window < len(tokens):
                window *= 2  # a document longer than the window
                continue
            stops = (start + ends + 1).tolist()
            if start + window >= len(tokens):
                stops.append(len(tokens))
            for stop in stops:
                yield from pieces_of(self.tokenizer.decode(tokens[start:stop].tolist()))
                start, at.bytes = stop, 2 * stop


def _check_column(name: str, field: str, columns: Sequence[str]) -> None:
    if field not in columns:
        raise UserError(
            f"{name} has no column {field!r}; name it with --field "
            f"(there are: {', '.join(columns)})"
        )


def _next(rows: Iterator[T], name: str) -> T | None:
    """The next of the rows that a library reads; None at their end."""
    try:
        return next(rows, None)
    except Exception as error:  # the network, damage, or a bug of the dataset
        raise UserError(f"reading {name} stopped part-way: {first_line(error)}") from None


def _cell_pieces(text: object, field: str, name: str) -> Iterator[Piece]:
    """The pieces of a table's cell; a missing text is an empty one."""
    if text is None:
        return
    if not isinstance(text, str):
        raise UserError(f"{name} has no text in the column {field!r}; name another with --field")
    yield from pieces_of(_without_halves(text))


def _without_halves(text: str) -> str:
    """Replace lone surrogates, which JSON can contain but UTF-8 cannot, by `?`."""
    return text.encode(errors="replace").decode()


class PieceStream:
    """Iterates over (piece, split) of training inputs and then of validation inputs.

    A document of a training input goes to validation if the hash of its first piece, read as a
    number in [0, 1), is below `fraction`: the same text always goes to the same split, whatever
    file it is in. The first document is never held out, since it may be the only one.
    """

    def __init__(self, train: list[Source], val: list[Source], fraction: float) -> None:
        self.train, self.val, self.fraction = train, val, fraction
        self.position = 0
        """Bytes of the input files read so far."""
        self.count = {"train": 0, "val": 0}
        """Pieces of each split so far."""
        self.has_text = {"train": False, "val": False}
        """Whether any piece of a split has more than whitespace."""
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def size(self) -> int | None:
        """Bytes of all input files; None if unknown."""
        sizes = [source.size for source in (*self.train, *self.val)]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def stamps(self) -> list[list[int] | None]:
        """The mtime and ctime of each input file; None if unknown.

        The ctime moves with every change of the content and cannot be set back.
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
                    held_out = held_out and self.pieces_read > 0
                    split = "val" if held_out else given
                self.count[split] += 1
                self.has_text[split] |= not piece.text.isspace()
                self.position = done + at.bytes
                yield piece, split
            done += source.size or 0
            self.position = done
