"""Trials of a promise: a sample of them in `make test`, all of them in `make test-slow`.

A trial breaks something on purpose (kills a process, flips a bit, starts a second writer) and says
what went wrong, or nothing. It is told its number, which is also its seed, so that a failure can be
repeated alone. With SPHERELM_TRIALS_LOG=FILE every promise leaves a line of JSON there: the table
of docs/reliability.md is made from these.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

ALL = "SPHERELM_ALL_TRIALS"
LOG = "SPHERELM_TRIALS_LOG"


def hold(
    promise: str,
    trial: Callable[[int], str | None],
    *,
    sample: int,
    full: int,
    at_once: int | None = None,
) -> None:
    """Run `trial` `sample` times (or `full` times), some at once, and fail with what went wrong.

    Trials start processes of their own, so threads are enough to run them side by side.
    """
    count = full if os.environ.get(ALL) else sample
    began = time.monotonic()
    workers = at_once or os.cpu_count() or 1
    with ThreadPoolExecutor(workers if os.environ.get(ALL) else 1) as pool:
        answers = list(pool.map(trial, range(count)))
    failures = [f"trial {number}: {wrong}" for number, wrong in enumerate(answers) if wrong]
    if os.environ.get(LOG):
        line = {
            "promise": promise,
            "trials": count,
            "failed": len(failures),
            "seconds": round(time.monotonic() - began, 1),
        }
        with open(os.environ[LOG], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    assert not failures, f"{len(failures)} of {count}: " + "; ".join(failures[:5])
