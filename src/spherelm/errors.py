"""The one exception a user can cause.

Everything that is the user's to put right (a field, a file, a flag) raises `UserError` with one
line that names what was wrong and what would be right. The command line prints that line and
exits with status 2; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """A mistake in what the user gave us; the message is one line and names the remedy."""

    exit_status = 2

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere
        """Whether all processes of a run raise it alike: then the first one says it for all."""


MOST_MEANT = 4
"""Names of which one was meant, and that are still all told."""


def nearest(name: str, valid: Iterable[str], before: str = "") -> str:
    """A hint for a misspelt name: the closest valid one, or all of them when nothing is close.

    One that is not written to its end may mean a few. What stands `before` all of them is told and
    not compared: it would make any two alike.
    """
    valid = sorted(valid)
    meant = [each for each in valid if name and each.startswith(name)]
    if not 0 < len(meant) <= MOST_MEANT:
        meant = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if meant:
        return f"did you mean {' or '.join(repr(before + each) for each in meant)}?"
    return f"valid: {', '.join(before + each for each in valid)}"


def no_folder(path: Path) -> str:
    """That a path is no folder: it is a file, or nothing is there."""
    return f"{path} {'is a file' if path.is_file() else 'does not exist'}"


def some(things: Sequence[object], most: int = 4) -> str:
    """The first things of a list, and whether there are more."""
    return ", ".join(map(str, things[:most])) + (", ..." if len(things) > most else "")


@contextlib.contextmanager
def or_say(what: str) -> Iterator[None]:
    """Do what is inside; where the system does not, end in one line: `what`, and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {error.strerror or error}") from None


def first_line(error: BaseException) -> str:
    """What a library's exception says, in its first line; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def shortened(value: object, longest: int = 100) -> str:
    """A value as Python writes it, in one line and cut to `longest` characters."""
    text = " ".join(repr(value).split("\n"))
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def package(name: str, purpose: str, extra: str = "data") -> Any:
    """A package that is an extra of ours, imported; where it is not there, how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        said = f"{purpose} needs the package {name}: pip install 'spherelm[{extra}]'"
        raise UserError(said) from None
