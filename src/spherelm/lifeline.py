"""Worker processes that end with their parent, even if it is killed while they start.

A parent that is killed cannot tell its workers, and they would wait for it forever. A `Lifeline`
among the arguments of a worker begins to watch the parent when it is unpickled: before the
arguments after it, and so before the imports that these need, which take the longest.

Ctrl-C is for the parent, which then ends its workers. A terminal sends it to the workers as well;
those started inside `deaf` never hear it, not even while they are importing.
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
    """The first argument of a worker: an end of a pipe whose other end only its parent holds."""

    def __init__(self, context: BaseContext) -> None:
        self._far_end, self._parents_end = context.Pipe(duplex=False)

    def __reduce__(self) -> tuple[Callable[[Connection], None], tuple[Connection]]:
        return _watch, (self._far_end,)

    def close(self) -> None:
        """Close the pipe: workers that are still running end."""
        self._far_end.close()
        self._parents_end.close()


@contextlib.contextmanager
def spawned(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Start a process that calls `target` with its end of a pipe and the arguments; yields our end.
    It ends with this process or with the `with` block, whichever is first.

    Only the process holds its end: if it dies, even in the middle of an answer, ours raises (see
    `or_died`). A pool of `concurrent.futures` would wait forever for the rest of the answer.
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
            yield ours  # not closed here, since another thread may be reading from it
        finally:
            process.kill()
            process.join()


@contextlib.contextmanager
def or_died(who: str, remedy: str) -> Iterator[None]:
    """Around a message to or from a `spawned` process: if it has died, one line says so."""
    try:
        yield
    except (EOFError, OSError):  # the latter in the middle of a message
        died = f"{who} has died, perhaps for lack of memory"
        raise UserError(f"{died}; {remedy}") from None


@contextlib.contextmanager
def watched_pool(
    workers: int, start: Callable[..., None], *arguments: Any
) -> Iterator[tuple[ProcessPoolExecutor, Lifeline]]:
    """A pool of processes that end with this one, each of which first calls `start`.

    They are spawned: a fork would copy locks without the threads that hold them, and could not use
    a GPU. Closing the lifeline ends them, even in the middle of their work.
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
    """Call `start` in a process with a lifeline."""
    start(*arguments)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Processes started inside never hear Ctrl-C. This one does only at the end: interrupted
    earlier, it would leave a half-started process that waits forever."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # otherwise starting a process would, and unblock the signal
    heard: list[tuple[int, FrameType | None]] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = callable(handler) and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, lambda *got: heard.append(got))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit this
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
