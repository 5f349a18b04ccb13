"""Replaces a folder by another in one step: at any time, either the old or the new one is there.

Linux and macOS can exchange two names. If the file system cannot, the old folder is first put
aside, and `recover` puts it back if the process was killed between the two renames.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

from spherelm import durable

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_AT_FDCWD = -100


def beside(target: Path) -> Path:
    """Where the folder that will become `target` is built."""
    return target.with_name(f".{target.name}.writing")


def aside(target: Path) -> Path:
    """Where the old `target` is for a moment if names cannot be exchanged."""
    return target.with_name(f".{target.name}.replaced")


def put(new: Path, target: Path) -> None:
    """Move the folder `new` to `target`; the old `target`, if any, is then at `new`.

    `target` may be absent, an empty folder, or one to be replaced.
    """
    try:
        os.rename(new, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not exchange(new, target):
            os.rename(target, aside(target))
            os.rename(new, target)
            os.rename(aside(target), new)
    durable.force_to_disk(target.parent)


def recover(target: Path) -> None:
    """Put back an old folder that a killed process left aside, where names cannot be exchanged."""
    old = aside(target)
    if old.is_dir() and not old.is_symlink() and not target.exists():
        os.rename(old, target)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; False if the system or the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(*names, ctypes.c_uint(_EXCHANGE))
    elif sys.platform == "linux" and hasattr(libc, "renameat2"):
        here = ctypes.c_int(_AT_FDCWD)
        failed = libc.renameat2(here, names[0], here, names[1], ctypes.c_uint(_EXCHANGE))
    else:
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))
