"""What the program needs around `main`: open streams, and a clean Ctrl-C at any time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

from spherelm.console import PLAIN


def take_over() -> bool:
    """Make streams and signals safe to use; False if stdout is closed.

    If the caller has closed a standard stream, the next file opened would get its descriptor and
    receive what is written to the stream, so descriptors 0 to 2 are filled first. Characters that
    a terminal cannot show are replaced by ones that it can.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # takes the lowest free descriptor
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open while the process lives
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    if sys.stdout is None:
        return False
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors=PLAIN)  # type: ignore[union-attr]
    return True


def _interrupted(signum: int, frame: FrameType | None) -> None:
    """Ctrl-C raises KeyboardInterrupt as usual, except during an import: there it could surface as
    some other error, so the process exits at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            if (place := sys.modules.get("spherelm.folders.place")) is not None:
                with contextlib.suppress(Exception):  # it may itself be only half imported
                    place.disown_all()
            os.write(2, b"spherelm: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """The work is done: from here on Ctrl-C could only disturb Python's shutdown."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def discard_output() -> None:
    """Drop output that stdout has buffered but cannot write; Python would retry at shutdown."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
