"""The exception for everything that the user can fix.

A wrong field, file or flag raises `UserError` with one line that says what is wrong and what would
be right. The command line prints that line and exits with status 2; any other exception is a bug
and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """An error that the user can fix; the message is one line and names the remedy."""

    exit_status = 2

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere
        """Whether all processes of a run raise it; then only the first one prints it."""


MOST_MEANT = 4
"""The most completions of an abbreviated name that a hint lists."""


def nearest(name: str, valid: Iterable[str], before: str = "") -> str:
    """A hint for a misspelled name: the closest valid one, or all of them if none is close.

    For an abbreviated name, its few completions. The prefix `before` is shown with each but not
    compared, since it would make any two names similar.
    """
    valid = sorted(valid)
    meant = [each for each in valid if name and each.startswith(name)]
    if name in valid:  # without what it was prefixed with
        meant = [name]
    elif not 0 < len(meant) <= MOST_MEANT:
        meant = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if meant:
        return f"did you mean {' or '.join(repr(before + each) for each in meant)}?"
    return f"valid: {', '.join(before + each for each in valid)}"


def no_folder(path: Path) -> str:
    """Why a path is not a folder: it is a file, or does not exist."""
    return f"{path} {'is a file' if path.is_file() else 'does not exist'}"


def some(things: Sequence[object], most: int = 4) -> str:
    """The first items of a list, and ", ..." if there are more."""
    return ", ".join(map(str, things[:most])) + (", ..." if len(things) > most else "")


@contextlib.contextmanager
def or_say(what: str) -> Iterator[None]:
    """Turn an `OSError` inside the `with` block into one line: `what`, and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {error.strerror or error}") from None


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its name if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def shortened(value: object, longest: int = 100) -> str:
    """A value as Python writes it, in one line and cut to `longest` characters."""
    text = " ".join(repr(value).split("\n"))
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def package(name: str, purpose: str, extra: str = "data") -> Any:
    """Import a package of one of our extras; if it is missing, say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        said = f"{purpose} needs the package {name}: pip install 'spherelm[{extra}]'"
        raise UserError(said) from None
