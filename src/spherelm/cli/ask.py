"""Prompts typed one after another on a terminal: each is answered as it is written."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from spherelm.cli import complain
from spherelm.errors import UserError

MARK = "> "


def is_terminal() -> bool:
    """Whether somebody sits there who types and reads."""
    streams = (sys.stdin, sys.stdout)
    return all(s is not None and not s.closed and s.isatty() for s in streams)


def ask(answer: Callable[[str, int], None]) -> None:
    """Ask for prompts until Ctrl-D, and hand each to `answer` with its number, from 0.

    Ctrl-C ends an answer, or drops what was typed so far, and not the program. Where Python has
    `readline`, the line can be edited and the arrow keys bring back what was typed before.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - `input` uses it as soon as it is there
    print("Type a prompt. Ctrl-C stops an answer, Ctrl-D ends.", file=sys.stderr, flush=True)
    number = 0
    while True:
        try:
            prompt = input(MARK)
            answer(prompt, number)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        except UserError as error:  # such as a prompt that is too long for the memory
            complain(str(error))
            continue
        number += 1
