"""One writer of a folder at a time.

The file `.spherelm` in the folder records the verb that wrote the folder (the mark) and, while
somebody is writing, who: host, process and its start. The writer holds a lock of the operating
system on that file, which ends with the process, however that ends. So on one machine a free lock
means that the last holder is dead, whatever the file says. On a file system shared by several
machines, the lock may not be seen by the others. Therefore a holder also keeps touching the file,
and a process on another machine takes the folder only when that has stopped.

Under `torchrun` the main process holds the folder for all ranks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from spherelm.errors import UserError
from spherelm.folders.kinds import OWNER

BEAT = 5.0
"""Seconds between two touches of the file by its holder."""
SILENCE = 45.0
"""Seconds without a touch after which a holder on another machine counts as dead."""
LONG_DEAD = 600.0
"""If the file is older than this by our own clock, we do not wait for a touch."""

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)


@dataclass(frozen=True)
class Holder:
    """A process that writes a folder."""

    verb: str
    host: str
    machine: str
    """The boot id: changes with every boot, and is the same for all processes on one kernel."""
    process: int
    started: str
    """When the process began, as its system counts; tells apart processes with the same id."""
    since: str
    """When it took the folder, in UTC."""

    def __str__(self) -> str:
        return f"`spherelm {self.verb}`, process {self.process} on {self.host} since {self.since}"


@dataclass(frozen=True)
class Record:
    """The content of the file in a folder."""

    verb: str | None = None
    """The verb that wrote what the folder holds."""
    holder: Holder | None = None
    """Who is writing there now, or died while writing."""


class Held(UserError):
    """Somebody else is writing to the folder."""


def read_record(folder: Path) -> Record:
    """The record of a folder; empty if there is none that can be read."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(folder / OWNER, flags), "rb") as file:
            return _parse(file.read(1 << 16))
    except OSError:
        return Record()


def _parse(content: bytes) -> Record:
    try:
        value, _ = json.JSONDecoder().raw_decode(content.decode("utf-8"))
        verb = value["verb"]
        holder = Holder(**value["holder"]) if value.get("holder") else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Record()
    return Record(verb if isinstance(verb, str) else None, holder)


class Owner:
    """This process's exclusive claim to a folder, from `take` to `release`."""

    def __init__(self, folder: Path, verb: str, descriptor: int, before: Record) -> None:
        self.folder = folder
        self.verb = before.verb
        """The verb of the mark; until `sign`, that of an earlier writer."""
        self.made: list[Path] = []
        """The folders created for this claim, innermost first."""
        self._holder = _this_process(verb)
        self._descriptor: int | None = descriptor
        self._ended = threading.Event()
        _owners.add(self)
        self._write(self._holder)
        threading.Thread(target=_renew, args=(descriptor, self._ended), daemon=True).start()

    def sign(self, verb: str) -> None:
        """Mark the folder as written by this verb."""
        self.verb = verb
        self._write(self._holder)

    def release(self) -> None:
        """Let others take the folder; the mark stays."""
        self._let_go(lambda: self._write(None))

    def remove(self) -> None:
        """Release the folder and remove its mark: for one that is deleted or given to others."""
        self._let_go(lambda: os.unlink(self.folder / OWNER))

    def _let_go(self, last_act: Callable[[], None]) -> None:
        """Unlock, even if a child just forked still has the descriptor open."""
        if self._descriptor is None:
            return
        self._ended.set()
        with contextlib.suppress(OSError):
            last_act()
        _unlock(self._descriptor)
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _write(self, holder: Holder | None) -> None:
        assert self._descriptor is not None
        value = {"verb": self.verb, "holder": asdict(holder) if holder else None}
        content = (json.dumps(value, indent=1) + "\n").encode()
        os.pwrite(self._descriptor, content, 0)  # in place: the lock is on this very file
        os.ftruncate(self._descriptor, len(content))


def take(folder: Path, verb: str) -> Owner:
    """Make `folder` if needed, and claim it; if somebody else has it, the error names them."""
    while True:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(folder / OWNER, flags, 0o666)
        except FileNotFoundError:  # the folder was removed just now
            continue
        try:
            locks = _lock(descriptor)
            before = _parse(os.pread(descriptor, 1 << 16, 0))
            if locks is False:
                raise held(folder, before.holder)
            if not _is_at(descriptor, folder / OWNER):  # removed or replaced while we waited
                os.close(descriptor)
                continue
            if before.holder is not None and _lives(before.holder, folder, locks is True):
                raise held(folder, before.holder)
            try:
                owner = Owner(folder, verb, descriptor, before)
            except OSError:  # a full disk: do not even leave our file
                if before.holder is None and before.verb is None:
                    os.unlink(folder / OWNER)
                if new:
                    folder.rmdir()
                raise
            if locks is None:
                _make_sure(owner)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return owner


def held(folder: Path, holder: Holder | None) -> Held:
    """The error that names who is writing there."""
    who = holder or "another process"
    return Held(f"{folder} is being written by {who}; wait for it, or choose another --out")


def holds(folder: Path) -> bool:
    """Whether this process holds `folder`."""
    return any(owner.folder == folder for owner in all_held())


def all_held() -> list[Owner]:
    """All folders that this process holds."""
    return [owner for owner in list(_owners) if owner._descriptor is not None]


# ------------------------------------------------------------------ alive or dead


def _lock(descriptor: int) -> bool | None:
    """Try to lock a file; returns whether we got it, None if the file system has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def _unlock(descriptor: int) -> None:
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _lives(holder: Holder, folder: Path, locked: bool) -> bool:
    """Whether the last holder of a folder may still be writing, though the lock was free."""
    if holder.machine == _machine():
        return not locked and _started(holder.process) == holder.started
    return _shows_life(folder / OWNER, holder)


def _shows_life(file: Path, holder: Holder) -> bool:
    """Whether a holder on another machine touches its file within `SILENCE` seconds."""
    first = _time_of(file)
    if time.time() - first / 1e9 > LONG_DEAD:
        return False
    print(
        f"spherelm: {file.parent} was held by {holder}; "
        f"waiting up to {SILENCE:.0f} s for a sign that it lives",
        file=sys.stderr,
        flush=True,
    )
    deadline = time.monotonic() + SILENCE
    while time.monotonic() < deadline:
        time.sleep(min(0.5, SILENCE / 10))
        if _time_of(file) != first:
            return True
    return False


def _time_of(file: Path) -> int:
    """When a file was last touched. Opens it, because only then a network file system asks the
    server."""
    with open(file, "rb") as opened:
        return os.fstat(opened.fileno()).st_mtime_ns


def _renew(descriptor: int, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with contextlib.suppress(OSError):
            os.utime(descriptor)


def _make_sure(owner: Owner) -> None:
    """Without locks two processes may have come at once: the last to write its name wins."""
    time.sleep(0.3)
    now = read_record(owner.folder).holder
    if now != owner._holder:
        owner._ended.set()
        owner._descriptor = None  # closed by `take`
        raise held(owner.folder, now)


def _this_process(verb: str) -> Holder:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    started = _started(os.getpid()) or now
    return Holder(verb, platform.node(), _machine(), os.getpid(), started, now)


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _started(process: int) -> str | None:
    """Clock ticks from boot to the start of a process; None if there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return fields[19]
    except (OSError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(process, 0)  # no /proc: at least whether there is such a process
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "unknown"


# ------------------------------------------------------------------ children

_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def _forget() -> None:
    """A forked child owns nothing: its copy of the lock must not outlive its parent."""
    for owner in list(_owners):
        owner._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
