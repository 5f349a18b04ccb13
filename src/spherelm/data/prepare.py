"""Text to a folder of token shards: on all cores, in a fixed order, resumable.

The input is one stream of pieces. Each split collects its pieces in batches, batches are tokenized
in parallel and come back in order, and a shard is closed with the batch that fills it. So shards
depend only on the input and the settings, not on the number of workers. A shard's header records
how many pieces had been read at its end, and their digest. Started again, `prepare` reads up to
there without tokenizing, checks that the input is the same, and continues.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from spherelm import records
from spherelm.data import dataset, writer
from spherelm.data.documents import Piece
from spherelm.data.encode import (
    available_cores,
    cut_after,
    encode_batches,
    encode_pieces,
    join,
)
from spherelm.data.shards import smallest_dtype
from spherelm.data.sources import PieceStream, Source, find_sources
from spherelm.data.the_end import Place, Remembered, before_the_end, find_end, split_at
from spherelm.data.tokenizer import Tokenizer
from spherelm.data.tokenizer_load import load_saved_tokenizer, load_tokenizer
from spherelm.data.writer import Mark, OutputFolder, SplitWriter
from spherelm.errors import UserError, or_say, shortened, some
from spherelm.folders import place
from spherelm.folders.kinds import PREPARE
from spherelm.validate import Fraction, check_fields, require_int

BATCH = 1 << 18
"""Characters of a batch: about a hundred milliseconds of tokenizing."""
TOKENIZER_TEXT = 1 << 30
"""A new tokenizer is trained on the first so many characters of the input."""


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """How inputs become shards; the command line has a flag for each field."""

    tokenizer: str | None = None
    """bytes (the default), gpt2 or another name on the Hugging Face hub, a tokenizers JSON file or
    folder, GPT-2's encoder.json, or a SentencePiece .model."""
    train_tokenizer: int | None = None
    """Train a byte-level BPE with this many tokens on the text instead."""
    end_of_document: str | None = None
    """Token that ends a document, if the tokenizer has none of the usual ones."""
    field: str = "text"
    """Field or column that holds the text."""
    val_fraction: Fraction | None = None
    """Share of documents held out for validation, chosen by their hash; if that chooses none, this
    share of the text is held out at its end. 0.01 unless --val is given."""
    val: tuple[str, ...] = ()
    """Separate inputs for validation."""
    dtype: Literal["auto", "uint16", "uint32"] = "auto"
    """uint16 or uint32; auto: the smallest that holds the tokenizer's ids."""
    shard_tokens: int = 1 << 26
    """Approximate number of tokens in a shard."""
    workers: int | None = None
    """Processes to tokenize in. Unset: all cores."""

    def __post_init__(self) -> None:
        check_fields(self, "--")


@dataclass(frozen=True)
class PrepareConfig(PrepareSettings):
    """The arguments of `prepare`."""

    inputs: tuple[str, ...]
    out: Path

    def __post_init__(self) -> None:
        named = (*self.inputs, *self.val) if isinstance(self.inputs, tuple) else (self.inputs,)
        if not all(isinstance(name, str) for name in named):
            raise UserError(f"inputs and val must be tuples of names, not {named!r}")
        if not isinstance(self.out, Path):
            raise UserError(f"out must be a Path, not {self.out!r}")
        if not self.inputs:
            raise UserError("there is no input: name files, folders, globs, hf:NAME or - for stdin")
        super().__post_init__()
        if self.train_tokenizer is not None:
            require_int("--train-tokenizer", self.train_tokenizer, at_most=2**31)
        if self.tokenizer is not None and self.train_tokenizer is not None:
            raise UserError("--tokenizer and --train-tokenizer cannot be given together; give one")
        if self.val and self.val_fraction is not None:
            raise UserError("--val and --val-fraction cannot be given together; give one")
        if [*self.inputs, *self.val].count("-") > (self.train_tokenizer is None):
            raise UserError("stdin (-) can be read once: not for two inputs or --train-tokenizer")

    @property
    def fraction(self) -> float:
        """Share of documents held out by their hash."""
        if self.val_fraction is not None:
            return self.val_fraction
        return 0.0 if self.val else 0.01


@dataclass(frozen=True)
class Progress:
    """What has been done so far."""

    stage: str
    """What is being done."""
    read: int
    """Bytes read of the input files, as stored on disk."""
    size: int | None
    """Total bytes of the input files; None if unknown."""
    text_bytes: int = 0
    """Bytes of text tokenized by this call."""
    tokens: int = 0
    """Tokens made by this call."""


Report = Callable[[Progress], None]


class Prepared(NamedTuple):
    """The result of `prepare`."""

    manifest: dict[str, Any]
    """The content of `dataset.json`."""
    was_complete: bool
    """Whether the folder was already complete, with nothing left to do."""


def prepare(config: PrepareConfig, report: Report = lambda progress: None) -> Prepared:
    """Make the folder `config.out`, or finish an interrupted one."""
    named = None
    if config.tokenizer is not None:
        named = load_tokenizer(config.tokenizer, config.end_of_document)
    train = find_sources(config.inputs, config.field, named)
    val = find_sources(config.val, config.field, named)
    _check_named_once(train)
    _check_named_once(val)
    _check_apart(train, val)
    if config.train_tokenizer is not None:
        _check_no_pipe(train)
    stream = PieceStream(train, val, config.fraction)
    settings = _settings(config, train, val, named)
    place.check_apart(config.out, [name for name in (*config.inputs, *config.val) if name != "-"])
    if (done := _finished_before(config, settings, stream)) is not None:
        return Prepared(done, was_complete=True)
    # After an error, such as a full disk, finished shards stay for the next start.
    with or_say(f"cannot write to {config.out}"), place.owned(config.out, PREPARE) as owner:
        done = _finished_before(config, settings, stream)  # another process may have finished it
        if done is not None:
            return Prepared(done, was_complete=True)
        before = _settings_before(config.out, settings)
        tokenizer = named or _tokenizer(config, train, before is not None, report)
        dtype = smallest_dtype(tokenizer.vocab_size) if config.dtype == "auto" else config.dtype
        if tokenizer.vocab_size > np.iinfo(dtype).max + 1:
            raise UserError(
                f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids, more than {dtype} "
                "holds; use --dtype uint32"
            )
        settings["tokenizer_fingerprint"] = tokenizer.fingerprint
        if before is not None:
            _compare(config.out, before, settings)
        run = _Run(config, stream, dtype, OutputFolder(owner, settings, tokenizer), report)
        return Prepared(run.run(), was_complete=False)


def _check_named_once(sources: list[Source]) -> None:
    """Refuse the same file twice, for example as a folder and a glob in it: it would be trained on
    twice, and if the end of the text is held out, evaluated on as well."""
    seen = set()
    for source in sources:
        path = os.path.abspath(source.name)
        if path in seen:
            raise UserError(f"{source.name} is named twice; name each input once")
        seen.add(path)


def _check_apart(train: list[Source], val: list[Source]) -> None:
    """Refuse to validate on training data, such as a file of a folder that is an input."""
    trained = {os.path.realpath(source.name) for source in train}
    for source in val:
        if os.path.realpath(source.name) in trained:
            raise UserError(
                f"{source.name} is in --val and among the inputs: validating on text that a model "
                "was trained on tells nothing; leave it out of one of them"
            )


def _check_no_pipe(sources: list[Source]) -> None:
    """Refuse to train a tokenizer on a pipe, which can be read only once: tokenizing would begin
    where training stopped."""
    for source in sources:
        if Path(source.name).is_fifo():
            raise UserError(
                f"{source.name} is a pipe, which can be read only once, and --train-tokenizer "
                "reads its text twice; write it to a file first"
            )


def _settings(
    config: PrepareConfig, train: list[Source], val: list[Source], named: Tokenizer | None
) -> dict[str, Any]:
    """All that determines the content of the shards, except a tokenizer still to be trained."""
    values = dataclasses.asdict(config)
    for name in ("out", "workers"):
        del values[name]
    known = {} if named is None else {"tokenizer_fingerprint": named.fingerprint}
    return (
        values
        | known
        | {
            "inputs": [source.name for source in train],
            "val": [source.name for source in val],
            "val_fraction": config.fraction,
        }
    )


def _settings_before(out: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The settings of an earlier start in the folder `out`, which must be the same; None if there
    was none."""
    if place.is_vacant(out):
        return None
    if not (out / writer.SETTINGS).is_file():
        place.check_own(out, PREPARE)  # passes only if a start was killed before it wrote them
        return None
    before = records.read_format(out / writer.SETTINGS, writer.FORMAT, writer.VERSION)
    _compare(out, before, settings)
    return before


def _compare(out: Path, before: dict[str, Any], settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if before.get(name) != value:
            then, now = _given(name, before.get(name)), _given(name, value)
            raise UserError(f"{out} was begun {then}, not {now}; name a new --out")


def _given(name: str, value: Any) -> str:
    """A setting as a flag on the command line; one without a flag, by its name."""
    if name not in {field.name for field in dataclasses.fields(PrepareSettings)}:
        return f"with {name} = {shortened(value)}"
    flag = f"--{name.replace('_', '-')}"
    if value is None or value == []:
        return f"without {flag}"
    return f"with {flag} {shortened(value) if isinstance(value, list) else value}"


def _changed(out: Path) -> UserError:
    return UserError(f"the input is not the one that {out} was begun with; name a new --out")


def _finished_before(
    config: PrepareConfig, settings: dict[str, Any], stream: PieceStream
) -> dict[str, Any] | None:
    """The manifest of the folder, if it is complete and the input is the same.

    If the input's files were touched since, the input is read again, but not tokenized: the size of
    a file says too little, and the dates of a mere copy differ.
    """
    before = _settings_before(config.out, settings)
    file = config.out / dataset.MANIFEST
    if before is None or not file.is_file():
        return None
    manifest = records.read_format(file, dataset.FORMAT, dataset.VERSION)
    prepared = dataset.open_folder(config.out)
    prepared.tokenizer()  # like open_folder, refuses damage
    if "-" in (*config.inputs, *config.val) or manifest.get("input_bytes") != stream.size:
        raise _changed(config.out)
    if manifest.get("input_stamps") == stream.stamps:
        return manifest
    for _ in stream:
        pass
    ends = [shard.header for split in prepared.splits.values() for shard in split.shards]
    last = max(ends, key=lambda header: header.pieces_read)
    if (last.pieces_read, last.pieces_digest) != (stream.pieces_read, stream.digest):
        raise _changed(config.out)
    return manifest


def _tokenizer(
    config: PrepareConfig, train: list[Source], resumed: bool, report: Report
) -> Tokenizer:
    """The byte tokenizer, or one trained on the text (which a resumed start already has)."""
    if config.train_tokenizer is None:
        return load_tokenizer("bytes")
    if resumed:
        return load_saved_tokenizer(config.out / "tokenizer")
    from spherelm.data.train_apart import train_apart

    texts = _training_texts(PieceStream(train, [], config.fraction), report)
    first = next(texts, None)
    if first is None:
        raise _no_text(train)
    return train_apart(itertools.chain([first], texts), config.train_tokenizer)


def _training_texts(stream: PieceStream, report: Report) -> Iterator[str]:
    """Texts to train a tokenizer on, without those held out."""
    left, size = TOKENIZER_TEXT, stream.size
    for piece in before_the_end(stream, stream.fraction):
        yield piece.text
        left -= len(piece.text)
        # Large inputs are not read to the end: progress is also that towards TOKENIZER_TEXT.
        done = max(stream.position, (TOKENIZER_TEXT - left) * (size or 0) // TOKENIZER_TEXT)
        report(Progress("reading for the tokenizer", done, size))
        if left <= 0:
            break
    report(Progress("training the tokenizer", 0, None))


def _no_text(sources: list[Source]) -> UserError:
    names = some([source.name for source in sources], 3)
    return UserError(f"there is no text in {names} (spaces and newlines do not count)")


@dataclass
class _Run:
    """One run of `prepare`, once everything has been checked."""

    config: PrepareConfig
    stream: PieceStream
    dtype: str
    folder: OutputFolder
    report: Report

    def __post_init__(self) -> None:
        self.stamps = self.stream.stamps  # before any of it is read
        self.remembered = Remembered()
        self.writers = {
            split: SplitWriter(self.folder, split, self.config.shard_tokens)
            for split in ("train", "val")
        }

    def run(self) -> dict[str, Any]:
        stream, tokenizer = self.stream, self.folder.tokenizer
        workers = self.config.workers or available_cores()
        if tokenizer.name == "bytes":
            workers = 1  # copying bytes is faster than sending them to another process
        text_bytes = tokens = 0
        for mark, encoded in encode_batches(tokenizer, self.dtype, self._batches(), workers):
            self.writers[mark.split].add(encoded, mark)
            text_bytes += int(encoded.text_bytes.sum())
            tokens += len(encoded.tokens)
            self.report(Progress("tokenizing", stream.position, stream.size, text_bytes, tokens))
        if not stream.has_text["train"]:
            raise _no_text(stream.train)
        if stream.val and not stream.has_text["val"]:
            raise _no_text(stream.val)
        if stream.fraction and not stream.count["val"]:
            self._hold_out_the_end()
        # Validation first, so that the last training shard completes the data.
        for split in ("val", "train"):
            self.writers[split].close_shard()
        shards = {split: writer.headers for split, writer in self.writers.items()}
        return dataset.write_manifest(
            self.folder.path, tokenizer, shards, input_bytes=stream.size, input_stamps=self.stamps
        )

    def _batches(self) -> Iterator[tuple[Mark, list[Piece]]]:
        """Batches of each split's pieces, without those that finished shards already hold."""
        stream = self.stream
        batches: dict[str, list[Piece]] = {"train": [], "val": []}
        characters = {"train": 0, "val": 0}
        for piece, split in stream:
            self.remembered.add(piece, split)
            for written in self.writers.values():  # the input must be the same as before
                at_its_end = stream.pieces_read == written.resume_at
                if at_its_end and stream.digest != written.headers[-1].pieces_digest:
                    raise _changed(self.folder.path)
            if stream.pieces_read <= self.writers[split].resume_at:
                continue
            batches[split].append(piece)
            characters[split] += len(piece.text)
            if characters[split] >= BATCH:
                yield Mark(split, stream.pieces_read, stream.digest), batches[split]
                batches[split], characters[split] = [], 0
        if stream.pieces_read < max(writer.resume_at for writer in self.writers.values()):
            raise _changed(self.folder.path)
        for split, batch in batches.items():
            if batch:
                yield Mark(split, stream.pieces_read, stream.digest), batch

    def _hold_out_the_end(self) -> None:
        """Hold out the end of the text if no document fell to validation, as with a single text.

        At most the content of the last shard is held out, and of very many pieces, whole ones.
        """
        train, val = self.writers["train"], self.writers["val"]
        if not train.held:
            return  # a start that stopped after its last shard has already done it
        whole = join(train.held)
        n_pieces, n_all = len(whole.ends), self.stream.count["train"]
        pieces = self.remembered.pieces
        if pieces is None:
            end = Place(max(1, n_all - max(1, round(self.stream.fraction * n_all))), 0)
        else:
            end = find_end(pieces, self.stream.fraction)
        if end.piece < n_all - n_pieces:  # in a shard already written
            end = Place(n_all - n_pieces, 0)
        head, tail = cut_after(whole, end.piece - (n_all - n_pieces))
        if pieces is not None and end.character:
            halves = split_at(pieces[end.piece], end.character)
            first, second = cut_after(encode_pieces(self.folder.tokenizer, self.dtype, halves), 1)
            head, tail = join([head, first]), join([second, cut_after(tail, 1)[1]])
        train.held = [head] if len(head.ends) else []
        if not val.headers:
            val.add(tail, Mark("val", self.stream.pieces_read, self.stream.digest))
