"""The folder that `prepare` writes: one writer per split, one process at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from spherelm import records
from spherelm.data.encode import join
from spherelm.data.shards import (
    Encoded,
    ShardHeader,
    check_shard,
    open_shard,
    shard_name,
    write_shard,
)
from spherelm.data.tokenizer import Tokenizer
from spherelm.folders.kinds import PREPARE
from spherelm.folders.owner import Owner

SETTINGS, FORMAT, VERSION = "prepare.json", "spherelm prepare settings", 1
"""The file with everything that determines the shards; written before any of them."""


class OutputFolder:
    """The output folder, held by us; nothing is written before the first shard."""

    def __init__(self, owner: Owner, settings: dict[str, Any], tokenizer: Tokenizer) -> None:
        self.path, self.tokenizer = owner.folder, tokenizer
        self._owner, self._settings = owner, settings

    def begin(self) -> None:
        """Write the files that come before the shards, unless they exist."""
        if not (self.path / SETTINGS).is_file():
            self._owner.sign(PREPARE.verb)
            self.tokenizer.save(self.path / "tokenizer")
            about = {"format": FORMAT, "version": VERSION}
            records.write(self.path / SETTINGS, about | self._settings)


class Mark(NamedTuple):
    """Where in the input a batch ends."""

    split: str
    pieces_read: int
    digest: str


class SplitWriter:
    """Collects the tokens of a split and writes its shards."""

    def __init__(self, folder: OutputFolder, split: str, shard_tokens: int) -> None:
        """Continue after the shards that an earlier start finished."""
        self.folder, self.split, self.shard_tokens = folder, split, shard_tokens
        self.headers: list[ShardHeader] = []
        while (folder.path / f"{shard_name(split, len(self.headers))}.json").is_file():
            shard = open_shard(folder.path, shard_name(split, len(self.headers)))
            check_shard(folder.path, shard)
            self.headers.append(shard.header)
        self.resume_at = self.headers[-1].pieces_read if self.headers else 0
        self.held: list[Encoded] = []
        self._mark: Mark | None = None

    def add(self, encoded: Encoded, mark: Mark) -> None:
        """Take a batch. A full shard is closed when more comes, so the last one is always held."""
        if sum(len(e.tokens) for e in self.held) >= self.shard_tokens:
            self.close_shard()
        self.held.append(encoded)
        self._mark = mark

    def close_shard(self) -> None:
        """Write the tokens held, if any, as a shard."""
        if not self.held:
            return
        assert self._mark is not None
        self.folder.begin()
        header = write_shard(
            self.folder.path,
            self.split,
            len(self.headers),
            join(self.held),
            self.folder.tokenizer,
            pieces_read=self._mark.pieces_read,
            pieces_digest=self._mark.digest,
        )
        self.headers.append(header)
        self.held = []
