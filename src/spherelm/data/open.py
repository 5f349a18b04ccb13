"""Opens data: a prepared folder, a nanoGPT folder, or the built-in corpus.

The built-in corpus is the source code of Python's standard library, with its documentation. Every
Python installation has it, so the first run needs no network and no other text. Each file is a
document, in the order of their paths; files whose path hashes below a twentieth are held out for
validation. Tokens are bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spherelm import durable
from spherelm.data.dataset import TokenDataset, open_folder, write_manifest
from spherelm.data.documents import Piece
from spherelm.data.encode import encode_pieces
from spherelm.data.shards import ShardHeader, write_shard
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.errors import UserError

VAL_SHARE = 1 / 20
SKIPPED_FOLDERS = frozenset(
    # Third-party packages; tests, which many installations lack; demos.
    ("site-packages", "dist-packages", "test", "tests", "idle_test", "turtledemo", "__pycache__")
)
SKIPPED_PREFIX = "_sysconfigdata"  # build variables of this very Python

_temporary: list[tempfile.TemporaryDirectory[str]] = []
"""Used if no cache folder can be written; kept until the process ends."""


def open_dataset(
    path: str | Path | None = None, verify: bool | None = None, vocab_size: int | None = None
) -> TokenDataset:
    """Open the folder at `path` (see `open_folder`), or without a path, the built-in corpus."""
    return open_builtin() if path is None else open_folder(path, verify, vocab_size)


def open_builtin() -> TokenDataset:
    """The built-in corpus, from the user's cache; making it at the first use takes a second."""
    documents = list(_documents(Path(sysconfig.get_path("stdlib"))))
    if not documents:
        raise UserError("this Python has no library sources to train on; name data with --data")
    digest = hashlib.blake2b(digest_size=8)
    for path, text in documents:
        digest.update(f"{path}\n{len(text)}\n".encode() + text)
    name = f"builtin-{platform.python_version()}-{digest.hexdigest()}"
    try:
        return _open_or_write(durable.cache_folder() / name, documents)
    except (OSError, RuntimeError):  # the home folder is read-only, or there is none
        _temporary.append(tempfile.TemporaryDirectory(prefix="spherelm-"))
        return _open_or_write(Path(_temporary[-1].name) / name, documents)


def _open_or_write(folder: Path, documents: list[tuple[str, bytes]]) -> TokenDataset:
    if folder.is_dir():
        try:
            dataset = open_folder(folder, verify=True)
            dataset.tokenizer()
            return dataset
        except UserError:  # a damaged cache is simply made again
            shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        _write(Path(scratch) / "corpus", documents)
        try:
            os.rename(Path(scratch) / "corpus", folder)
        except OSError:
            if not folder.is_dir():
                raise  # otherwise another process was faster, with the same content
    return open_folder(folder, verify=False)


def _write(folder: Path, documents: list[tuple[str, bytes]]) -> None:
    tokenizer = ByteTokenizer()
    tokenizer.save(folder / "tokenizer")
    shards: dict[str, list[ShardHeader]] = {}
    for split in ("train", "val"):
        texts = [text for path, text in documents if _held_out(path) == (split == "val")]
        pieces = [Piece(text.decode(), starts=True, ends=True) for text in texts]
        encoded = encode_pieces(tokenizer, "uint16", pieces)
        shards[split] = [write_shard(folder, split, 0, encoded, tokenizer)]
    write_manifest(folder, tokenizer, shards)


def _documents(library: Path) -> Iterator[tuple[str, bytes]]:
    """Relative path and text of every source file, in the order of the paths."""
    found: list[Path] = []
    for folder, subfolders, files in os.walk(library):
        subfolders[:] = set(subfolders) - SKIPPED_FOLDERS
        sources = (f for f in files if f.endswith(".py") and not f.startswith(SKIPPED_PREFIX))
        found += [Path(folder) / file for file in sources]
    for name in sorted(path.relative_to(library).as_posix() for path in found):
        text = (library / name).read_bytes()
        with contextlib.suppress(UnicodeDecodeError):
            if text.decode():
                yield name, text


def _held_out(path: str) -> bool:
    digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < VAL_SHARE * 2**64
