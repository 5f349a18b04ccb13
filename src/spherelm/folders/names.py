"""A name that was read from a file, before it becomes a path.

A folder may come from anywhere: what its files say is data. A name in it may point only to a file
that lies beside it, never up, down or elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spherelm import records


def is_plain(name: Any) -> bool:
    """Whether `name` names a file in the folder it is read in, and can name nothing else."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return not any(c in '/\\:"<>|?*' or not c.isprintable() for c in name)


def beside(file: Path, name: Any) -> Path:
    """The path of `name`, which `file` gave, in the folder of `file`."""
    if not is_plain(name):
        raise records.damaged(file, f"{_short(name)} is not the name of a file beside it")
    return file.parent / name


def step_number(file: Path, value: Any) -> int:
    """A number of steps, which `file` gave: it becomes the name of a folder."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**15:
        raise records.damaged(file, f"step must be a whole number from 0 on, not {_short(value)}")
    return value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:97]}..."
