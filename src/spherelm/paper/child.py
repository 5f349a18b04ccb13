"""A `spherelm` that ends when the process that started it is gone, however that went:

    python -m spherelm.paper.child PARENT VERB ...

A run whose queue was killed would otherwise hold its folder and its share of the GPU while the next
queue wants to go on with it. It gets SIGTERM, upon which a training writes a checkpoint. On Linux
alone: elsewhere such a run trains to its end.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Ask the system for SIGTERM when `parent` ends; it may have done so already."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv = ["spherelm", *sys.argv[2:]]
    runpy.run_module("spherelm", run_name="__main__")
