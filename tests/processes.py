"""The command line as real processes, started quickly: forked from one that has imported torch."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["spherelm.train.loop", "spherelm.cli.train", "tyro"])


def _main(
    argv: list[str], log: str, environment: dict[str, str], before: Callable[[], None] | None
) -> None:
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False, buffering=1)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
    import torch

    from spherelm.cli import main

    torch.set_num_threads(1)
    if before is not None:
        before()
    sys.exit(main(argv))


class Spherelm:
    """A running `spherelm ...`; its output goes to a file. `before` is called in it at first."""

    def __init__(
        self,
        argv: list[str],
        log: Path,
        environment: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.log = log
        arguments = (argv, str(log), environment or {}, before)
        self.process: ForkServerProcess = _fork.Process(target=_main, args=arguments)
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def wait(self, timeout: float = 120) -> int:
        """The exit status, negative for a signal."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, f"still running: {self.output()}"
        return self.process.exitcode

    def kill(self, signal: int) -> None:
        os.kill(self.pid, signal)

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_until(self, condition: Callable[[], bool], timeout: float = 60) -> bool:
        """Wait for a condition; False when the process ended before it came true."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if condition():
                return True
            if not self.process.is_alive():
                return False
            time.sleep(0.002)
        raise TimeoutError(self.output())


def run(argv: list[str], log: Path) -> tuple[int, str]:
    """Run `spherelm ...` to its end: exit status and output."""
    process = Spherelm(argv, log)
    return process.wait(), process.output()
