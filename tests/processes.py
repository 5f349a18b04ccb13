"""The command line as real processes, started quickly: forked from one that has imported torch."""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path


class _Server:
    """The process that forks (see `server`); any thread may ask it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._news = threading.Condition()
        self._pids: dict[int, int] = {}
        self._statuses: dict[int, int] = {}
        command = [sys.executable, "-m", "tests.server"]
        root = Path(__file__).parents[1]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self,
        argv: list[str],
        log: Path,
        environment: dict[str, str],
        before: Callable[[], None] | None,
    ) -> tuple[int, int]:
        """Number and process id of a new command."""
        number = next(self._numbers)
        packed = base64.b64encode(pickle.dumps(before)).decode()
        request = json.dumps(
            {
                "id": number,
                "argv": argv,
                "log": str(log),
                "environment": environment,
                "before": packed,
            }
        )
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        with self._news:
            assert self._news.wait_for(lambda: number in self._pids, timeout=120)
        return number, self._pids[number]

    def status(self, number: int, timeout: float = 0) -> int | None:
        """How a command ended; None while it runs."""
        with self._news:
            self._news.wait_for(lambda: number in self._statuses, timeout)
            return self._statuses.get(number)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._news:
                if "pid" in answer:
                    self._pids[answer["id"]] = answer["pid"]
                else:
                    self._statuses[answer["id"]] = answer["status"]
                self._news.notify_all()


_starting = threading.Lock()


@functools.cache
def _made() -> _Server:
    return _Server()


def _server() -> _Server:
    with _starting:
        return _made()


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
        self._server = _server()
        self._number, self.pid = self._server.start(argv, log, environment or {}, before)

    def wait(self, timeout: float = 120) -> int:
        """The exit status, negative for a signal."""
        status = self._server.status(self._number, timeout)
        assert status is not None, f"still running: {self.output()}"
        return status

    def kill(self, signal: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, signal)

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def alive(self) -> bool:
        return self._server.status(self._number) is None

    def wait_until(self, condition: Callable[[], bool], timeout: float = 60) -> bool:
        """Wait for a condition; False when the process ended before it came true."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if condition():
                return True
            if not self.alive():
                return False
            time.sleep(0.002)
        raise TimeoutError(self.output())


def run(argv: list[str], log: Path, before: Callable[[], None] | None = None) -> tuple[int, str]:
    """Run `spherelm ...` to its end: exit status and output."""
    process = Spherelm(argv, log, before=before)
    return process.wait(), process.output()
