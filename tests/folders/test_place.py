"""May this verb write here: own, foreign, input, inside, beside; and one folder for another."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from spherelm.errors import UserError
from spherelm.folders import owner as owners
from spherelm.folders import place, swap
from spherelm.folders.kinds import EVAL, EXPORT, IMPORT, OWNER, TRAIN
from spherelm.folders.owner import read_record, take
from tests.ordinary_user import as_an_ordinary_user


def files(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): p.read_text() if p.is_file() else "folder"
        for p in sorted(folder.rglob("*"))
    }


def export(out: Path, text: str, force: bool = False, inputs: tuple[str | Path, ...] = ()) -> None:
    with place.whole(out, EXPORT, force=force, inputs=inputs, marked=False) as folder:
        (folder / "config.json").write_text(text)
        (folder / "spherelm.json").write_text(text)


@pytest.fixture(params=[True, False], ids=["exchanged", "put aside"])
def exchanges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to replace a folder."""
    if not request.param:
        monkeypatch.setattr(swap, "exchange", lambda one, other: False)


@pytest.mark.usefixtures("exchanges")
def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, "old")
    with pytest.raises(UserError, match=r"already holds an export; .* replace it with --force"):
        export(out, "new")
    export(out, "new", force=True)
    assert files(tmp_path) == {
        "out": "folder",
        "out/config.json": "new",
        "out/spherelm.json": "new",
    }


def test_what_fails_leaves_the_old_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, "old")
    before = files(tmp_path)
    for error in (KeyError, OSError, KeyboardInterrupt):
        with pytest.raises(UserError if error is OSError else error):
            fail(out, error)
        assert files(tmp_path) == before


def fail(out: Path, error: type[BaseException]) -> None:
    with place.whole(out, EXPORT, force=True) as folder:
        (folder / "config.json").write_text("half")
        raise error("the disk is full")


def test_where_names_cannot_be_exchanged_the_old_comes_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, "old")
    os.rename(out, tmp_path / ".out.replaced")  # killed right here
    with pytest.raises(UserError, match="already holds an export"):
        export(out, "new")
    assert (out / "config.json").read_text() == "old"
    run = tmp_path / "run"
    with place.owned(run, TRAIN) as owner:
        owner.sign("train")
        (run / "config.toml").write_text("old")
    os.rename(run, tmp_path / ".run.replaced")
    with place.owned(run, TRAIN):
        assert (run / "config.toml").read_text() == "old"


@pytest.mark.usefixtures("exchanges")
def test_what_was_replaced_and_left_aside_goes_away(tmp_path: Path) -> None:
    """Killed once the new folder had its name: the old one lay in the way of every later one."""
    out = tmp_path / "out"
    export(out, "old")
    os.rename(out, tmp_path / ".out.replaced")
    (tmp_path / ".out.writing").mkdir()
    (tmp_path / ".out.writing" / "spherelm.json").write_text("new")
    os.rename(tmp_path / ".out.writing", out)  # killed right here
    with pytest.raises(UserError, match="already holds an export"):
        export(out, "newer")
    assert files(out) == {"spherelm.json": "new"}
    export(out, "newer", force=True)
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    assert (out / "config.json").read_text() == "newer"


@pytest.mark.parametrize("force", [False, True])
def test_foreign_files_are_refused_by_name(tmp_path: Path, force: bool) -> None:
    out = tmp_path / "out"
    export(out, "old")
    (out / "thesis.tex").write_text("years of work")
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"out holds thesis.tex, which `spherelm export` did not"):
        export(out, "new", force=force)
    assert files(tmp_path) == before


def test_names_alone_do_not_make_a_folder_ours(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("somebody's model")
    with pytest.raises(UserError, match=r"holds README.md, which `spherelm export` did not write"):
        export(tmp_path, "new", force=True)
    with place.whole(tmp_path / "run", IMPORT, force=False) as folder:
        (folder / "config.toml").touch()
        (folder / "env.json").touch()
    with pytest.raises(
        UserError, match="was written by `spherelm import`, not by `spherelm train`"
    ):
        place.check(tmp_path / "run", TRAIN, force=True)


def test_a_file_that_came_while_we_wrote_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, "old")
    with (
        pytest.raises(UserError, match=r"holds note.txt, which `spherelm export` did not write"),
        place.whole(out, EXPORT, force=True, marked=False),
    ):
        (out / "note.txt").write_text("mine")
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    assert (out / "config.json").read_text() == "old"
    (out / "note.txt").unlink()
    (tmp_path / ".out.writing").mkdir()
    (tmp_path / ".out.writing" / "note.txt").write_text("mine")
    with pytest.raises(UserError, match=r"\.out\.writing is in the way: it holds note.txt"):
        export(out, "new", force=True)
    assert (tmp_path / ".out.writing" / "note.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "source", "message"),
    [
        ("data", "data", "is an input, too"),
        ("data/deep/out", "data", "lies inside the input"),
        (".", "data", "holds the input"),
        ("link", "data", "is an input, too"),
        ("data", "link", "is an input, too"),
        ("link/out", "data", "lies inside the input"),
        ("data", "data/text.txt", "holds the input"),
    ],
)
def test_an_input_is_never_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/text.txt").write_text("text")
    Path("link").symlink_to("data")
    with pytest.raises(UserError, match=message):
        export(Path(out), "new", force=True, inputs=(source,))
    assert files(tmp_path / "data") == {"text.txt": "text"}


def test_nothing_is_written_into_the_output_of_another_call(tmp_path: Path) -> None:
    with place.owned(tmp_path / "run", TRAIN) as owner:
        owner.sign("train")
        (tmp_path / "run" / "config.toml").touch()
        place.check_apart(tmp_path / "run" / "inner", ())  # by the one who holds it
    with pytest.raises(UserError, match=r"lies inside .*/run, which `spherelm train` wrote"):
        export(tmp_path / "run" / "deep" / "hf", "new")


def test_a_link_to_a_folder_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    export(tmp_path / "link", "old")
    export(tmp_path / "link", "new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "config.json").read_text() == "new"


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(UserError, match="a link that leads nowhere"):
        export(tmp_path / "dangling", "new")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "home"),
    [("~/runs/x", "/home/me/runs/x, or "), ("~", "/home/me, or "), ("~nobody0", "")],
)
def test_a_home_that_no_shell_has_replaced_makes_no_folder_of_that_name(
    name: str, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to leave out an = or quotes, also where there was neither; ./~ is no other name,
    since a path forgets its dot."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    for given in (name, f"./{name}"):
        with pytest.raises(UserError, match="means a folder named ~") as refusal:
            export(Path(given), "new")
        told = f": write {home}{tmp_path / name} if you do mean that"
        assert str(refusal.value).endswith(told)
    assert not list(tmp_path.iterdir())
    export(tmp_path / name, "new")
    export(Path("here") / name, "new")  # such a name is a name like any other there
    assert (tmp_path / "here" / name / "config.json").read_text() == "new"


def test_a_loop_of_links_a_file_and_a_forbidden_name(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "file").touch()
    for name in ("one", "file", "file/below", "a\0b", "x" * 300):
        # From Python 3.13 on, a loop of links is one that leads nowhere.
        with pytest.raises(UserError, match=r"is a file|cannot|leads nowhere"):
            export(tmp_path / name, "new")
    assert {p.name for p in tmp_path.iterdir()} == {"one", "two", "file"}


def test_what_cannot_be_written_is_seen_by_looking() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        for out in (folder, folder / "new", folder / "new" / "deep"):
            with (
                as_an_ordinary_user(),
                pytest.raises(UserError, match=f"you may not write in {name}; choose another"),
            ):
                place.check(out, EXPORT, force=False)
        assert files(folder) == {}


def test_a_folder_inside_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"lies inside .*/file, which is a file; choose another"):
        place.check(tmp_path / "file" / "new" / "deep", EXPORT, force=False)


def test_the_folder_one_is_in_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is the folder you are in"):
        export(Path(), "new")


def test_of_two_that_build_one_folder_the_second_is_told(tmp_path: Path) -> None:
    with place.whole(tmp_path / "out", EXPORT, force=False, marked=False) as folder:
        (folder / "spherelm.json").touch()
        with pytest.raises(UserError, match=rf"{tmp_path}/out is being written by `spherelm expor"):
            export(tmp_path / "out", "other")
    assert files(tmp_path / "out") == {"spherelm.json": ""}


def test_leftovers_of_killed_calls_go_away(tmp_path: Path) -> None:
    left = take(tmp_path / ".out.writing", "export")
    (tmp_path / ".out.writing" / "model.safetensors").touch()
    left._close()  # as a kill does: no word, no cleaning
    export(tmp_path / "out", "new")
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    left = take(tmp_path / ".run.writing", "train")
    left._close()
    with place.owned(tmp_path / "run", TRAIN) as owner:
        owner.sign("train")
        assert not (tmp_path / ".run.writing").exists()


def test_results_do_not_go_to_what_became_anothers_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(folder: Path, verb: str) -> owners.Owner:
        folder.mkdir()
        (folder / "thesis.tex").write_text("years of work")
        return take(folder, verb)

    monkeypatch.setattr(owners, "take", late)
    with (
        pytest.raises(UserError, match=r"holds thesis.tex, which `spherelm eval` did not write"),
        place.results(tmp_path / "out", EVAL),
    ):
        pytest.fail("it was given away")
    assert files(tmp_path / "out") == {"thesis.tex": "years of work"}


def test_a_folder_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with place.owned(tmp_path / "a" / "b", TRAIN):
        assert (tmp_path / "a" / "b" / OWNER).is_file()
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    with place.owned(tmp_path / "mine", TRAIN):
        pass
    assert files(tmp_path) == {"mine": "folder"}
    (tmp_path / "mine" / "thesis.tex").touch()
    with place.owned(tmp_path / "mine", TRAIN):
        pass  # refused after all, and nothing signed
    assert files(tmp_path) == {"mine": "folder", "mine/thesis.tex": ""}


@pytest.mark.usefixtures("exchanges")
def test_a_held_folder_is_renewed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    owner = place.own(run, TRAIN)
    owner.sign("train")
    (run / "config.toml").write_text("old")
    with pytest.raises(KeyError):
        place.renew(owner, TRAIN, lambda folder: {}["nothing"])
    assert (run / "config.toml").read_text() == "old"
    new = place.renew(owner, TRAIN, lambda folder: None)
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
    assert [p.name for p in run.iterdir()] == [OWNER]
    with pytest.raises(UserError, match="is being written by `spherelm train`"):
        place.own(run, TRAIN)
    (run / "config.toml").write_text("new")
    place.disown(new)
    assert read_record(run).verb == "train"
