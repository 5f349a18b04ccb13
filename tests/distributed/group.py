"""The ranks of a run, forked quickly and told who they are as a launcher would.

Nobody ends them when one fails, as torchrun would: what is promised, each must keep by itself.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from tests.processes import Spherelm


class Group:
    """`spherelm ...` as several ranks; `own` are further arguments of single ranks."""

    def __init__(
        self,
        argv: list[str],
        folder: Path,
        *,
        size: int = 2,
        own: dict[int, list[str]] | None = None,
        before: dict[int, Callable[[], None]] | None = None,
        absent: tuple[int, ...] = (),
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        everyone = {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.ranks = [
            Spherelm(
                _with(argv, (own or {}).get(rank, [])),
                folder / f"rank-{rank}.log",
                {**everyone, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                (before or {}).get(rank),
            )
            for rank in range(size)
            if rank not in absent
        ]

    def wait(self, timeout: float = 60) -> list[int]:
        """The exit status of each rank."""
        return [rank.wait(timeout) for rank in self.ranks]

    def outputs(self) -> list[str]:
        return [rank.output() for rank in self.ranks]

    def kill(self, number: int) -> None:
        """Send a signal to all ranks."""
        for rank in self.ranks:
            rank.kill(number)

    def end(self) -> None:
        """Leave nothing running, not even a stopped rank."""
        for rank in self.ranks:
            if rank.alive():
                os.kill(rank.pid, signal.SIGKILL)
                rank.wait()


def _with(argv: list[str], own: list[str]) -> list[str]:
    """`argv` with the flags of `own`, each in the place of the same flag where there is one."""
    result = list(argv)
    for flag, value in zip(own[::2], own[1::2], strict=True):
        if flag in result:
            result[result.index(flag) + 1] = value
        else:
            result += [flag, value]
    return result
