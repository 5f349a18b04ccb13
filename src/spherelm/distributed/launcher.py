"""What started this process: a launcher such as `torchrun`, or a person.

A launcher starts several processes of one command, and tells each its rank in the environment.
"""

from __future__ import annotations

import os
from pathlib import Path

_BORN = os.getpid(), os.getppid()
"""The ids of this process and its parent at import: before torch, whose import takes seconds."""


def rank() -> int:
    """The rank of this process among those of its run."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of processes of the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is rank 0, which speaks for the whole run."""
    return rank() == 0


def parent() -> int:
    """The process that started us, even if it has ended since."""
    us, starter = _BORN
    return starter if os.getpid() == us else os.getppid()  # in a fork, _BORN is the parent's


def this_launch() -> str:
    """A name for the `torchrun` on this machine that started us, the same after a restart.

    torchrun makes a folder for each launch; TORCHELASTIC_ERROR_FILE is in it, at
    FOLDER/attempt_N/RANK/error.json. The run's id would not be enough: it is "none" unless set.
    """
    import socket  # takes 10 ms, too long for `spherelm --help`

    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    folder = str(Path(file).parents[2]) if file else f"process {os.getppid()}"
    return f"{socket.gethostname()} {os.environ.get('TORCHELASTIC_RUN_ID', '')} {folder}"
