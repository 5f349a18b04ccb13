"""SIGTERM and Ctrl-C ask a run to stop; it saves a checkpoint first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Notes the first SIGTERM or SIGINT while active; later ones do not interrupt the saving.

    SIGTERM may come twice, from a scheduler and again from `torchrun`, which forwards its signals;
    so may Ctrl-C under `torchrun`. In a run of a single process, a second Ctrl-C ends it at once:
    somebody does not want to wait.

    After a run was stopped by a signal, here or on another rank (`heeded`), another SIGTERM is
    ignored, so that the process still exits with 0.
    """

    def __init__(self, alone: bool = True) -> None:
        self.signal: signal.Signals | None = None
        self.heeded = False
        self._alone = alone
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                self._before[name] = signal.signal(name, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        listened = bool(self._before)
        for name in list(self._before):
            self._restore(name)
        if listened and self.heeded and (self.signal == signal.SIGTERM or not self._alone):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)
        if number == signal.SIGINT and self._alone:
            self._restore(signal.SIGINT)

    def _restore(self, name: signal.Signals) -> None:
        if name in self._before:
            signal.signal(name, self._before.pop(name))  # type: ignore[arg-type]


@contextlib.contextmanager
def hearing_again() -> Iterator[None]:
    """Restore the handler of SIGTERM at the end, for a process that continues after a run."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
