"""One writer at a time: who holds a folder, and when a hold has ended."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from spherelm.folders import owner as owners
from spherelm.folders.kinds import OWNER
from spherelm.folders.owner import Held, Holder, read_record, take


def here() -> Holder:
    return owners._this_process("train")


def left_by(folder: Path, holder: Holder) -> None:
    """A folder whose holder ended without a word."""
    folder.mkdir()
    record = {"verb": "train", "holder": dataclasses.asdict(holder)}
    (folder / OWNER).write_text(json.dumps(record))


def test_the_second_is_told_who_is_first(tmp_path: Path) -> None:
    first = take(tmp_path / "run", "train")
    with pytest.raises(
        Held, match=rf"written by `spherelm train`, process {os.getpid()} on \S+ si"
    ):
        take(tmp_path / "run", "train")
    first.sign("train")
    first.release()
    assert read_record(tmp_path / "run") == owners.Record("train", None)
    second = take(tmp_path / "run", "import")
    assert second.verb == "train"  # until it signs for what it writes
    second.release()
    assert json.loads((tmp_path / "run" / OWNER).read_text()) == {"verb": "train", "holder": None}


def test_a_killed_holder_has_let_go(tmp_path: Path) -> None:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        take(tmp_path / "run", "train").sign("train")
        os.write(told, b"!")
        time.sleep(60)
    os.read(ready, 1)
    with pytest.raises(Held, match=f"process {child} on"):
        take(tmp_path / "run", "train")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    holder = read_record(tmp_path / "run").holder
    assert holder is not None
    assert holder.process == child  # it could not say goodbye
    take(tmp_path / "run", "train").release()


def test_a_forked_child_does_not_hold_on(tmp_path: Path) -> None:
    held = take(tmp_path / "run", "train")
    done, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(done, 1)
        os._exit(0)
    held.release()
    take(tmp_path / "run", "train").release()
    os.write(end, b"!")
    os.waitpid(child, 0)


def test_the_child_of_a_killed_holder_does_not_hold_on(tmp_path: Path) -> None:
    ready, told = os.pipe()
    waits, end = os.pipe()
    holder = os.fork()
    if holder == 0:
        held = take(tmp_path / "run", "train")
        if os.fork() == 0:
            os.close(end)
            os.write(told, b"!")  # our copy of the lock is closed by now
            os.read(waits, 1)
            os._exit(0)
        time.sleep(60)
        held.release()
    os.read(ready, 1)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    take(tmp_path / "run", "train").release()
    os.close(end)  # ends the child


def test_a_record_that_was_removed_while_we_came_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a holder that ends just then: two would each hold a file of their own."""
    lock, times = owners._lock, iter([True])

    def late(descriptor: int) -> bool | None:
        if next(times, False):
            os.unlink(tmp_path / "run" / OWNER)
        return lock(descriptor)

    monkeypatch.setattr(owners, "_lock", late)
    first = take(tmp_path / "run", "train")
    with pytest.raises(Held):
        take(tmp_path / "run", "train")
    first.release()


def test_another_process_of_the_same_number_is_not_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, flags: int) -> None:
        raise OSError(errno.ENOSYS, "not on this file system")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    left_by(tmp_path / "alive", here())
    with pytest.raises(Held, match=f"process {os.getpid()} on"):
        take(tmp_path / "alive", "train")
    left_by(tmp_path / "reused", dataclasses.replace(here(), started="1"))
    take(tmp_path / "reused", "train").release()
    left_by(tmp_path / "gone", dataclasses.replace(here(), process=2**22 + 1))
    take(tmp_path / "gone", "train").release()


def test_without_locks_of_two_that_come_at_once_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "_lock", lambda descriptor: None)
    monkeypatch.setattr(owners, "_lives", lambda *asked: False)  # neither saw the other's name
    names = iter(["one", "two"])
    made = owners._this_process
    monkeypatch.setattr(
        owners, "_this_process", lambda verb: dataclasses.replace(made(verb), host=next(names))
    )
    outcomes: list[object] = []

    def come() -> None:
        try:
            outcomes.append(take(tmp_path / "run", "train"))
        except Held as error:
            outcomes.append(error)

    both = [threading.Thread(target=come) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sum(isinstance(outcome, Held) for outcome in outcomes) == 1


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Holder:
    """A holder on another machine; signs of life are waited for for half a second."""
    monkeypatch.setattr(owners, "SILENCE", 0.5)
    monkeypatch.setattr(owners, "BEAT", 0.05)
    return dataclasses.replace(here(), host="node7", machine="another")


def test_a_holder_on_another_machine_is_named_while_it_lives(
    tmp_path: Path, elsewhere: Holder, capsys: pytest.CaptureFixture[str]
) -> None:
    left_by(tmp_path / "run", elsewhere)
    ended = threading.Event()
    descriptor = os.open(tmp_path / "run" / OWNER, os.O_RDWR)
    beating = threading.Thread(target=owners._renew, args=(descriptor, ended))
    beating.start()
    with pytest.raises(Held, match=f"process {os.getpid()} on node7 since"):
        take(tmp_path / "run", "train")
    ended.set()
    beating.join()
    take(tmp_path / "run", "train").release()  # silent now: given up
    assert "waiting up to" in capsys.readouterr().err
    os.close(descriptor)


def test_nobody_waits_for_one_that_is_long_dead(
    tmp_path: Path, elsewhere: Holder, capsys: pytest.CaptureFixture[str]
) -> None:
    left_by(tmp_path / "run", elsewhere)
    os.utime(tmp_path / "run" / OWNER, (0, time.time() - owners.LONG_DEAD - 1))
    take(tmp_path / "run", "train").release()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"verb": 3}', '{"holder": {"a": 1}}', "\x00"])
def test_a_record_that_cannot_be_read_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / OWNER).write_text(content)
    assert read_record(tmp_path) == owners.Record()
    take(tmp_path, "train").release()


def test_a_link_in_place_of_the_record_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "run" / OWNER).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):  # noqa: PT011 - the system's own: too many links
        take(tmp_path / "run", "train")
    assert (tmp_path / "victim").read_text() == "mine"
