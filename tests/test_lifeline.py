"""Processes that work for us: one that dies is told at once, wherever it was."""

import os
import signal
import struct
from multiprocessing.connection import Connection

import pytest

from spherelm.errors import UserError
from spherelm.lifeline import or_died, spawned


def _die_in_the_middle_of_an_answer(there: Connection) -> None:
    os.write(there.fileno(), struct.pack("!i", 1000) + b"the beginning of a thousand bytes")
    os.kill(os.getpid(), signal.SIGKILL)


def test_half_an_answer_is_not_waited_for() -> None:
    """As of a worker that was killed while it sent its tokens: a pool would wait forever."""
    with (
        spawned(_die_in_the_middle_of_an_answer) as worker,
        pytest.raises(UserError, match="it has died, perhaps for lack of memory; try again"),
        or_died("it", "try again"),
    ):
        worker.recv()
