"""One door to tokens: a prepared folder, a nanoGPT folder, or the built-in corpus."""

from __future__ import annotations

from pathlib import Path

from spherelm.data.builtin import open_builtin
from spherelm.data.dataset import TokenDataset, open_folder


def open_dataset(
    path: str | Path | None = None, verify: bool | None = None, vocab_size: int | None = None
) -> TokenDataset:
    """Open the folder at `path` (see `open_folder`), or the built-in corpus where there is none."""
    return open_builtin() if path is None else open_folder(path, verify, vocab_size)
