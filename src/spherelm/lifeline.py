"""A worker process that ends with its parent, from its first moments on.

A parent that is killed cannot say goodbye, and its workers would wait for it forever. A `Lifeline`
among the arguments of a worker begins to watch when it is unpickled: before the arguments after it
are, and so before what takes the longest, the imports that these need.

Ctrl-C is for the parent, which then ends its workers. A terminal sends it to them as well; one that
is started `deaf` never hears it, also while it still imports.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import FrameType
from typing import Any

from spherelm.errors import UserError


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


@contextlib.contextmanager
def spawned(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Our end of a pipe to a process that calls `target`, with its end and the arguments, and that
    ends with this one or with the block, whichever is first.

    Nobody else holds its end: where it dies, in the middle of an answer too, ours says so (see
    `or_died`). A pool of `concurrent.futures` would wait for the rest of that answer forever.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with contextlib.closing(Lifeline(context)) as lifeline:
        arguments = (lifeline, target, theirs, *arguments)
        process = context.Process(target=_start_worker, args=arguments, daemon=True)
        with deaf():
            process.start()
        theirs.close()
        try:
            yield ours  # closed when it is forgotten: another thread may be reading from it
        finally:
            process.kill()
            process.join()


@contextlib.contextmanager
def or_died(who: str, remedy: str) -> Iterator[None]:
    """Ask a `spawned` process; one that has died is told in one line."""
    try:
        yield
    except (EOFError, OSError):  # the latter in the middle of a message
        died = f"{who} has died, perhaps for want of memory"
        raise UserError(f"{died}; {remedy}") from None


@contextlib.contextmanager
def watched_pool(
    workers: int, start: Callable[..., None], *arguments: Any
) -> Iterator[tuple[ProcessPoolExecutor, Lifeline]]:
    """A pool of processes that end with this one, each of which calls `start` first.

    They are spawned: a fork would copy the locks of threads that it does not copy, and could not
    use a GPU. To close the lifeline ends them in the middle of their work.
    """
    context = multiprocessing.get_context("spawn")
    with (
        contextlib.closing(Lifeline(context)) as lifeline,
        ProcessPoolExecutor(
            workers,
            mp_context=context,
            initializer=_start_worker,
            initargs=(lifeline, start, *arguments),
        ) as pool,
    ):
        yield pool, lifeline


def _start_worker(lifeline: Lifeline | None, start: Callable[..., None], *arguments: Any) -> None:
    """Call `start` in a process that a lifeline watches over."""
    start(*arguments)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Processes that are started inside never hear Ctrl-C; we ourselves do when we are through, for
    a process that is half started would wait forever."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # else the first process would, and unblock the signal
    heard: list[tuple[int, FrameType | None]] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = callable(handler) and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, lambda *got: heard.append(got))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # is inherited
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if ours:
            signal.signal(signal.SIGINT, handler)
    if heard and callable(handler):
        handler(*heard[0])


def _watch(far_end: Connection) -> None:
    threading.Thread(target=_end_with_parent, args=(far_end,), daemon=True).start()


def _end_with_parent(far_end: Connection) -> None:
    far_end.poll(None)  # nothing is ever sent: this waits for the end of the pipe
    os._exit(1)
