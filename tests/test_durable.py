"""Files that are whole or absent: their permissions, and no way through a link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from spherelm import durable
from spherelm.hf.export import export_to_hf
from tests.saved_runs import byte_model, write_run


@pytest.fixture(params=[0o022, 0o027, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_get_the_permissions_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    run = write_run(tmp_path / "run", byte_model())
    export_to_hf(run, tmp_path / "hf")
    seen = 0
    for path in (p for folder in (run, tmp_path / "hf") for p in folder.rglob("*")):
        most = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == most & ~umask, path
        seen += 1
    assert seen > 15


def test_a_link_in_the_way_is_replaced_not_followed(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "target"
    victim.write_text("mine")
    for write in (durable.write_text, _by_a_library):
        (tmp_path / ".target.writing").symlink_to(victim)
        write(target, "new")
        assert victim.read_text() == "mine"
        assert target.read_text() == "new"
        assert not target.is_symlink()
        target.unlink()


def _by_a_library(path: Path, text: str) -> None:
    with durable.written(path) as temporary:
        temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)  # as safetensors does
        os.write(descriptor, text.encode())
        os.close(descriptor)


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".target.writing").write_text("half of it")
    durable.write_text(tmp_path / "target", "all")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"target": "all"}


def test_a_name_is_given_to_what_is_on_the_disk_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must find the old or the new: bytes first, then the name, then the folder."""
    acts: list[tuple[str, ...]] = []
    fsync, replace = os.fsync, os.replace

    def force(descriptor: int) -> None:
        there = (tmp_path, *tmp_path.iterdir())
        forced = os.fstat(descriptor)
        acts.append(("force", *(p.name for p in there if os.path.samestat(p.stat(), forced))))
        fsync(descriptor)

    def rename(old: Path, new: Path) -> None:
        acts.append(("rename", old.name, new.name, old.read_text()))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", force)
    monkeypatch.setattr(os, "replace", rename)
    durable.write_text(tmp_path / "target", "all")
    assert acts == [
        ("force", ".target.writing"),
        ("rename", ".target.writing", "target", "all"),
        ("force", tmp_path.name),
    ]


def test_who_reads_the_old_reads_all_of_it(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with open(target) as reader:
        durable.write_text(target, "a new and longer one")
        assert reader.read() == "old"
    assert target.read_text() == "a new and longer one"


def test_a_body_that_fails_leaves_the_old(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), durable.written(target) as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"target": "old"}


def test_a_full_disk_says_what_it_has_no_room_for(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    with pytest.raises(OSError, match="No space left on device") as caught, durable.written(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(file)
    assert list(tmp_path.iterdir()) == []
