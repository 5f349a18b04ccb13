"""Interactive prompts on a terminal, answered one at a time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from spherelm.cli import complain
from spherelm.errors import UserError

MARK = "> "


def is_terminal() -> bool:
    """Whether stdin and stdout are both a terminal, so that somebody can type and read."""
    streams = (sys.stdin, sys.stdout)
    return all(s is not None and not s.closed and s.isatty() for s in streams)


def ask(answer: Callable[[str, int], None]) -> None:
    """Ask for prompts until Ctrl-D, and pass each to `answer` with its number, from 0.

    Ctrl-C stops an answer or discards the line being typed, but does not end the program. Where
    Python has `readline`, lines can be edited and the arrow keys recall earlier ones.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - importing it is enough for `input` to use it
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
        except UserError as error:  # such as a prompt too long for the memory
            complain(str(error))
            continue
        number += 1
