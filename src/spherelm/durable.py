"""Files that are written atomically, and checksums to detect changes.

A file is written under a temporary name beside its target, forced to the disk, and renamed. So at
any time, even after a power cut, there is the old file, the new one or none, never a part of one.
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
    """The user's cache folder, for files that can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spherelm"


def checksum(path: Path) -> str:
    """CRC-32 of a file, as eight hexadecimal digits: detects any change within 32 adjacent bits."""
    value = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def force_to_disk(path: Path) -> None:
    """fsync a file or, if the system allows it, a folder (its directory entries)."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows does not open folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: Any) -> None:
    """Write `content`, any bytes-like object, to `path` atomically."""
    with written(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """A temporary file to write to, which becomes `path` when all of it is on the disk; it is
    removed on an error.

    The file gets the permissions of the umask, whatever a library sets. It is always new: leftovers
    of a killed process are removed, and links are not followed.
    """
    temporary = path.with_name(f".{path.name}.writing")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        temporary.unlink(missing_ok=True)  # if it is a link, the link itself
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
            error.filename = str(path)  # the error of a full disk names no file
        raise
    force_to_disk(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        name = ascii(error.object[max(0, error.start - 20) : error.end])
        raise UserError(f"cannot write {path}: a name in it, ...{name}, is not UTF-8") from None
    write_bytes(path, content)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON document to `path` atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
