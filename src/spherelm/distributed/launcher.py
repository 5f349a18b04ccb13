"""What started this process: `torchrun` and its like, or a person.

A launcher starts several processes of one command and tells each its rank in the environment.
"""

from __future__ import annotations

import os
from pathlib import Path

_BORN = os.getpid(), os.getppid()
"""Us and our parent when this was imported: before torch, which takes seconds."""


def rank() -> int:
    """The number of this process among those of its run."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes the run has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process speaks for all of its run."""
    return rank() == 0


def parent() -> int:
    """The process that started us, be it gone by now."""
    us, starter = _BORN
    return starter if os.getpid() == us else os.getppid()  # forked since: its copy is not ours


def this_launch() -> str:
    """A name of the `torchrun` on this machine that started us, the same after a restart.

    torchrun makes a folder for each launch, which TORCHELASTIC_ERROR_FILE lies in:
    FOLDER/attempt_N/RANK/error.json. The run's id alone would not do: it is "none" unless set.
    """
    import socket  # 10 ms, which `spherelm --help` does not have

    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    folder = str(Path(file).parents[2]) if file else f"process {os.getppid()}"
    return f"{socket.gethostname()} {os.environ.get('TORCHELASTIC_RUN_ID', '')} {folder}"
