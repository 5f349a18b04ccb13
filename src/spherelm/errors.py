"""The one exception a user can cause.

Everything that is the user's to put right (a field, a file, a flag) raises `UserError` with one
line that names what was wrong and what would be right. The command line prints that line and
exits with status 2; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what the user gave us; the message is one line and names the remedy."""

    exit_status = 2
    everywhere = False
    """Whether all processes of a run raise it alike, so that the first alone needs to say it."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest valid one, or all of them when nothing is close."""
    valid = sorted(valid)
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"valid: {', '.join(valid)}"
