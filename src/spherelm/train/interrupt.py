"""SIGTERM and Ctrl-C ask a run to stop; it saves a checkpoint first."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class StopRequest:
    """Notes the first SIGTERM or SIGINT while active; a second one ends the process as usual."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                self._before[name] = signal.signal(name, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]
        self._before = {}
