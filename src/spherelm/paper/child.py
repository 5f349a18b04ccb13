"""Run `spherelm` so that it ends when its parent process does, even if the parent was killed:

    python -m spherelm.paper.child PARENT VERB ...

Otherwise a run whose queue was killed would keep its folder and its share of the GPU while the next
queue wants to resume it. It gets SIGTERM, on which training writes a checkpoint. Linux only:
elsewhere such a run trains to its end.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when `parent` ends; exit at once if it already has."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv = ["spherelm", *sys.argv[2:]]
    runpy.run_module("spherelm", run_name="__main__")
