"""Files that are whole or absent, and that can tell when a bit has changed.

A write goes to a temporary name beside the target, is forced to the disk, and is renamed: whoever
looks, even after a power cut, finds the old file, the new one or none, never a part.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spherelm.errors import UserError

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
    with written(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` when all of it is on the disk, or is gone.

    The file gets the permissions that the umask gives, whatever a library thinks of them. It is a
    new one, in place of what a killed process left, never somebody's link followed.
    """
    temporary = path.with_name(f".{path.name}.writing")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        temporary.unlink(missing_ok=True)  # the link itself, where it is one
        descriptor = os.open(temporary, flags, 0o666)
        mode = os.fstat(descriptor).st_mode & 0o777
        os.close(descriptor)
        yield temporary
        temporary.chmod(mode)
        force_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say what it has no room for
        raise
    force_to_disk(path.parent)


def write_text(path: Path, text: str) -> None:
    """Put `text` at `path`, whole or not at all."""
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        name = ascii(error.object[max(0, error.start - 20) : error.end])
        raise UserError(f"cannot write {path}: a name in it, ...{name}, is not UTF-8") from None
    write_bytes(path, content)


def write_json(path: Path, value: Any) -> None:
    """Put a JSON document at `path`, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
