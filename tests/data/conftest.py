"""Small datasets on disk, written by the real writer, and a text to make one of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spherelm.data.dataset import TokenDataset, write_manifest
from spherelm.data.open import open_dataset
from spherelm.data.shards import Encoded, write_shard
from spherelm.data.tokenizer import ByteTokenizer

MakeDataset = Callable[..., TokenDataset]

DOCUMENTS = [
    f"Document {i}.\nIts second line, é and 二, {'very ' * (i % 40)}long." for i in range(400)
]
TEXT = "\n<|endoftext|>\n".join(DOCUMENTS)


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    """`make_dataset([n, m, ...])`: train shards of those lengths whose tokens count up from 0.

    Every token is its own position in the split (modulo 65536), so a test can tell from a batch
    which tokens it holds. A document starts every `document` tokens of a shard.
    """

    def make(lengths: list[int], document: int = 10, name: str = "data") -> TokenDataset:
        folder = tmp_path / name
        tokenizer = ByteTokenizer()
        tokenizer.save(folder / "tokenizer")
        headers: dict[str, list[object]] = {"train": [], "val": []}
        for split in headers:
            position = 0
            for i, length in enumerate(lengths):
                tokens = np.arange(position, position + length).astype(np.uint16)
                position += length
                starts, ends = np.arange(0, length, document), np.array([length])
                encoded = Encoded(tokens, starts, ends, text_bytes=3 * ends)
                headers[split].append(write_shard(folder, split, i, encoded, tokenizer))
        write_manifest(folder, tokenizer, headers)  # type: ignore[arg-type]
        return open_dataset(folder)

    return make


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return path
