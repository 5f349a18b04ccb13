"""A watchdog thread that notices when a run hangs, and says which rank is to blame.

Every process notes where it is (`at`: a tuple and a clock, a microsecond on the host). Its thread
writes that to the launcher's store about every second. Only a process that has not moved for
`timeout` reads what the others wrote. The rank to blame no longer answers, is behind the others, or
is not waiting while they are. The first other rank names it, and all end with status `HUNG`.

The thread also checks that the launcher is alive, since its ranks must not outlive it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from spherelm.distributed import launcher
from spherelm.distributed.agreement import named

PATIENCE = 5.0
"""Seconds within which a store that is alive answers."""
HUNG = 4
"""The exit status of processes that end because one of them hangs."""


@dataclass(frozen=True)
class Place:
    """Where a process is: the `count`-th place it has come to."""

    count: int
    what: str
    waits: bool
    """Whether it waits there for the device or for other processes."""
    limit: float
    """Seconds it may take to the next place."""
    since: float


@dataclass(frozen=True)
class Sign:
    """What a process last wrote about itself; the defaults if it never did."""

    beat: int | None = None
    count: int | None = None
    where: str = "before its first word"
    waits: bool = False
    """Whether it waits for the device or for other processes."""


class Watch:
    """Watches this process, and after `join` the others as well."""

    def __init__(self, timeout: float, start_timeout: float) -> None:
        self.timeout, self.start_timeout = timeout, start_timeout
        self.interval = min(1.0, timeout / 20)
        self._place = Place(0, "the start", False, start_timeout, time.monotonic())
        self._main, self._parent = threading.get_ident(), launcher.parent()
        self._store: Any = None
        self._rank, self._world_size = 0, 1
        self._beat, self._orphan, self._leaving = 0, False, False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def join(self, store: Any, rank: int, world_size: int) -> None:
        """Begin to compare with the others through `store`, a connection used only for this."""
        self._rank, self._world_size = rank, world_size
        self._store = store

    def at(self, what: str, long: bool = False, waits: bool = False) -> None:
        """Note where this process is; all processes come to the same places in the same order.

        `long`: what begins here may take `start_timeout` (compilation, a checkpoint).
        """
        limit = self.start_timeout if long else self.timeout
        self._place = Place(self._place.count + 1, what, waits, limit, time.monotonic())

    def stop(self) -> None:
        """Stop watching, at the end of the run.

        If the thread is about to end the process because a rank hangs, wait for that: the main
        thread must not exit first, for example because of a connection closed by another rank.
        """
        if not self._leaving:
            self._over.set()
        self._thread.join()
        self._store = None

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._over.wait(self.interval):
            if os.getppid() != self._parent:
                self._stop_with_launcher()
            self._speak()
            place = self._place
            if time.monotonic() - place.since > place.limit:
                self._investigate(place)

    def _stop_with_launcher(self) -> None:
        """The launcher is gone: act as if it had sent SIGTERM, to save a checkpoint if possible."""
        if not self._orphan:
            self._orphan = True
            os.kill(os.getpid(), signal.SIGTERM)

    def _speak(self) -> None:
        """Write our sign to the store, which lives as long as the launcher."""
        if self._store is None:
            return
        self._beat += 1
        place = self._place
        slow = time.monotonic() - place.since > 2 * self.interval
        where, waits = self._look() if slow else ("", False)
        sign = [self._beat, place.count, f"{place.what}{where}", waits]
        try:
            self._store.set(f"sign_{self._rank}", json.dumps(sign))
        except Exception:  # torch's, of several kinds
            self._store = None
            self._stop_with_launcher()

    def _look(self) -> tuple[str, bool]:
        """Where the main thread is in the code, and whether it waits there."""
        frame: FrameType | None = sys._current_frames().get(self._main)
        if frame is None:
            return "", False
        waits = _module(frame).startswith("torch.distributed")
        while frame.f_back is not None and not _module(frame).startswith("spherelm"):
            frame = frame.f_back
        file = os.path.basename(frame.f_code.co_filename)
        where = f" ({file}:{frame.f_lineno} in {frame.f_code.co_name})"
        return where, waits or self._place.waits

    def _investigate(self, place: Place) -> None:
        """We have not moved for too long: end the run, unless the others are just busy."""
        before = now = self._ask()
        if before:
            for _ in range(4):
                if self._over.wait(self.interval) or self._place is not place:
                    return
                self._speak()
            now = self._ask()
        if before and now:
            blamed, why = suspects(before, now)
            if not blamed:
                return
            able = [r for r in range(self._world_size) if r not in blamed]
            speaks = self._rank == min(able, default=0)
        elif now is None:  # no store to decide who speaks: one rank of each machine does
            blamed, why = [0], "the store of the run, on its machine, does not answer"
            speaks = self._rank == 1 or os.environ.get("LOCAL_RANK") == "0"
        else:  # the launcher, or the process with the store, has ended
            where, _ = self._look()
            blamed, why = [self._rank], f"it is in {place.what}{where}, and its launcher is gone"
            speaks = self._rank == 0
        if self._place is not place or self._over.is_set():
            return
        self._leaving = True
        if speaks:
            flag = "timeout" if place.limit == self.timeout else "start_timeout"
            line = (
                f"spherelm: {named(blamed)} hangs: {why}; nothing has moved for "
                f"{place.limit:g} s (parallel.{flag}); see what happens there, then go on with "
                "--resume auto\n"
            )
            with contextlib.suppress(OSError):
                os.write(2, line.encode(errors="replace"))
        time.sleep(4 * self.interval + 1)  # so that all find out before the first one exits
        os._exit(HUNG)

    def _ask(self) -> list[Sign] | None:
        """What all processes last wrote; None if the store does not answer either."""
        answers: queue.Queue[list[Sign]] = queue.Queue()
        threading.Thread(target=lambda: answers.put(self._signs()), daemon=True).start()
        try:
            return answers.get(timeout=PATIENCE)
        except queue.Empty:
            return None

    def _signs(self) -> list[Sign]:
        """What all processes last wrote; empty if the store is gone."""
        if self._store is None:
            return []
        keys = [f"sign_{rank}" for rank in range(self._world_size)]
        try:
            there = [key for key in keys if self._store.check([key])]
            found = dict(zip(there, self._store.multi_get(there), strict=True)) if there else {}
        except Exception:  # torch's, of several kinds
            self._store = None
            return []
        return [Sign(*json.loads(found[key])) if key in found else Sign() for key in keys]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def suspects(before: list[Sign], now: list[Sign]) -> tuple[list[int], str]:
    """The ranks that keep all others waiting, and why we think so; none if all are working."""
    if len(now) == 1:
        return [], ""  # there are no others
    signs = list(enumerate(now))
    silent = [r for r, s in signs if s.beat is None or s.beat == before[r].beat]
    if silent:
        return silent, f"no sign of life from {now[silent[0]].where} on"
    counts = [s.count or 0 for s in now]
    if any(s.count != b.count for s, b in zip(now, before, strict=True)):
        return [], ""  # somebody is moving
    behind = [r for r, count in enumerate(counts) if count < max(counts)]
    if behind:
        return behind, f"it is in {now[behind[0]].where}, the others are further"
    if not any(s.waits for s in now):
        return [], ""  # all are working: a long step
    busy = [r for r, s in signs if not s.waits]
    if busy:
        return busy, f"it is in {now[busy[0]].where}, where the others wait for it"
    return list(range(len(now))), f"all wait for each other in {now[0].where}"
