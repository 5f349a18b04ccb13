"""Zstandard: .zst files of any number of frames; a truncated one is an error.

Python itself reads them from 3.14 on. Before, the package zstandard does, but not with its `open`,
which accepts a file that ends in the middle of a frame.
"""

from __future__ import annotations

import importlib
import io
from typing import Any, BinaryIO

from spherelm.errors import package

CHUNK = 1 << 16
"""Compressed bytes read at a time."""


def open_zstd(raw: BinaryIO, mode: str) -> Any:
    """A stream of the decompressed bytes of `raw`."""
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        return io.BufferedReader(_Frames(raw, package("zstandard", "a .zst file")))
    return zstd.open(raw, mode)


class _Frames(io.RawIOBase):
    """Reads one frame after another, each of which must be complete."""

    def __init__(self, raw: BinaryIO, zstandard: Any) -> None:
        self._raw, self._new_frame = raw, zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._packed, self._unpacked = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked:
            packed = self._packed or self._raw.read(CHUNK)
            if not packed:
                if self._frame is not None and not self._frame.eof:
                    raise EOFError("Compressed file ended before the end of its last frame")
                return 0
            if self._frame is None or self._frame.eof:
                self._frame = self._new_frame()
            self._unpacked = memoryview(self._frame.decompress(packed))
            self._packed = self._frame.unused_data
        n = min(len(buffer), len(self._unpacked))
        buffer[:n], self._unpacked = self._unpacked[:n], self._unpacked[n:]
        return n
