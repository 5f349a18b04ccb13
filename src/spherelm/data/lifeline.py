"""A worker process that ends with its parent, from its first moments on.

A parent that is killed cannot say goodbye, and its workers would wait for it forever. A `Lifeline`
among the arguments of a worker begins to watch when it is unpickled: before the arguments after it
are, and so before what takes the longest, the imports that these need.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any


class Lifeline:
    """The first argument of a worker: the end of a pipe whose other end its parent alone holds."""

    def __init__(self, context: BaseContext) -> None:
        self._far_end, self._parents_end = context.Pipe(duplex=False)

    def __reduce__(self) -> tuple[Callable[[Connection], None], tuple[Connection]]:
        return _watch, (self._far_end,)

    def close(self) -> None:
        """The workers have ended."""
        self._far_end.close()
        self._parents_end.close()


def start_worker(lifeline: Lifeline | None, start: Callable[..., None], *arguments: Any) -> None:
    """The initializer of a pool: call `start` in a process that a lifeline watches over."""
    start(*arguments)


def _watch(far_end: Connection) -> None:
    threading.Thread(target=_end_with_parent, args=(far_end,), daemon=True).start()


def _end_with_parent(far_end: Connection) -> None:
    far_end.poll(None)  # nothing is ever sent: this waits for the end of the pipe
    os._exit(1)
