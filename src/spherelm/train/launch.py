"""Which start of `torchrun` a process belongs to, so that a restart knows the run that it began.

`torchrun --max-restarts` starts its processes again when one has failed, also when all it did was
to refuse. Only a run that this very launch began (env.json says so) is gone on with then; for any
other folder the flags count as they did the first time.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

from spherelm import records
from spherelm.errors import UserError
from spherelm.runs.run_dir import RunDir


def this_launch() -> str:
    """A name of the `torchrun` on this machine that started us, the same after a restart.

    torchrun makes a folder for each launch, which TORCHELASTIC_ERROR_FILE lies in:
    FOLDER/attempt_N/RANK/error.json. The run's id alone would not do: it is "none" unless set.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    folder = str(Path(file).parents[2]) if file else f"process {os.getppid()}"
    return f"{socket.gethostname()} {os.environ.get('TORCHELASTIC_RUN_ID', '')} {folder}"


def began_by(run_dir: RunDir, launch: Iterable[str]) -> bool:
    """Whether one of these launches (several machines have one each) began the run that is here."""
    if not run_dir.holds_a_run():
        return False
    try:
        before = records.read(run_dir.env).get("launch")
    except UserError:
        return False
    return isinstance(before, list) and any(name in before for name in launch)
