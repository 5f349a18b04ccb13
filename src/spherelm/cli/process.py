"""What a process of its own needs around `main`: open streams, and Ctrl-C at any time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

from spherelm.console import PLAIN


def take_over() -> bool:
    """Make streams and signals safe to use; False where stdout is closed.

    A stream that the caller has closed leaves its number to the next file that is opened, which
    would then get what is meant for the stream: the numbers are filled first. What a terminal
    cannot show is written in letters that it can.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest number that is free
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    if sys.stdout is None:
        return False
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors=PLAIN)  # type: ignore[union-attr]
    return True


def _interrupted(signum: int, frame: FrameType | None) -> None:
    """Ctrl-C: as ever, but in the midst of an import, which would fail in ways of its own."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            if (place := sys.modules.get("spherelm.folders.place")) is not None:
                with contextlib.suppress(Exception):  # which may be the very one, half imported
                    place.disown_all()
            os.write(2, b"spherelm: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """The work is done: from here on Ctrl-C could only disturb the end of Python itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def discard_output() -> None:
    """Give up what stdout holds and cannot write: Python would try again at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):  # a stream without a number
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
