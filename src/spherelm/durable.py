"""Files that are whole or absent, and that can tell when a bit has changed.

A write goes to a temporary name beside the target, is forced to the disk, and is renamed: whoever
looks, even after a power cut, finds the old file, the new one or none, never a part.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

_CHUNK = 1 << 22


def cache_folder() -> Path:
    """Where what can be made again is kept for this user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spherelm"


def checksum(path: Path) -> str:
    """CRC-32 of a file, as eight hexadecimal digits: finds any flip of up to 32 adjacent bits."""
    value = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def force_to_disk(path: Path) -> None:
    """fsync of a file or, where the system allows it, a folder (its names)."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows does not open folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: Any) -> None:
    """Put `content`, anything that holds bytes, at `path`, whole or not at all."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    force_to_disk(path.parent)


def write_text(path: Path, text: str) -> None:
    """Put `text` at `path`, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Put a JSON document at `path`, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
