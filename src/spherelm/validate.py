"""Checks of single values that end in one line naming the field."""

from __future__ import annotations

import math
import os
from pathlib import Path

from spherelm.errors import UserError


def require_choice(name: str, value: object, valid: tuple[str, ...]) -> None:
    """`value` is one of the words in `valid`."""
    if value not in valid:
        raise UserError(f"{name} must be one of {', '.join(valid)}, not {value!r}")


def require_bool(name: str, value: object) -> None:
    """`value` is true or false, not a number that means one of them."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, not {value!r}")


MOST = 2**63 - 1
"""The largest whole number that the libraries below us can count to."""


def require_int(name: str, value: object, at_least: int = 1, at_most: int = MOST) -> None:
    """`value` is a whole number of at least `at_least`, and not beyond what can be counted."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise UserError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    if value > at_most:
        raise UserError(f"{name} must be a whole number of at most {at_most}, not {_short(value)}")


def _short(value: int) -> str:
    """A number too long for a line by the number of its digits."""
    digits = int(value.bit_length() * 0.30103) + 1
    return f"{value}" if digits < 50 else f"one of about {digits} digits"


def require_folder(name: str, path: str) -> None:
    """`path` is a folder, or one that can be made: asked before hours are spent on what goes there.

    The first part of it that is there must be a folder that may be written.
    """
    if not path:
        raise UserError(f"{name} is empty; name a folder")
    there = Path(path)
    while not _is_there(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise UserError(f"{name} {path} cannot be made: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{name} {path} cannot be written: permission denied for {there}")


def _is_there(path: Path) -> bool:
    """Whether anything is, a link to nowhere too; an OSError where no such thing can be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def require_positive(name: str, value: object) -> None:
    """`value` is a finite number above 0."""
    if not _is_number(value) or value <= 0:  # type: ignore[operator]
        raise UserError(f"{name} must be a finite number above 0, not {value!r}")


def require_non_negative(name: str, value: object) -> None:
    """`value` is a finite number of at least 0."""
    if not _is_number(value) or value < 0:  # type: ignore[operator]
        raise UserError(f"{name} must be a finite number of at least 0, not {value!r}")


def require_fraction(name: str, value: object) -> None:
    """`value` is at least 0 and below 1."""
    if not _is_number(value) or not 0 <= value < 1:  # type: ignore[operator]
        raise UserError(f"{name} must be at least 0 and below 1, not {value!r}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the floats
        return False
