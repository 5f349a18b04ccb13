"""Mistakes end in one line on stderr and the right exit status, and change nothing on the disk."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.errors import UserError
from tests.faults import sandbox
from tests.faults.bad_calls import calls
from tests.faults.bad_inputs import BadInput, rows

pytest.importorskip("tokenizers")

ROWS = rows()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sandbox, as the working directory; no network, no login, a cache of its own."""
    root = tmp_path_factory.mktemp("sandbox")
    sandbox.build(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("NETRC", str(root / "nowhere"))
        for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
            patch.delenv(name, raising=False)
        yield root


def test_there_are_many() -> None:
    assert sum(ROWS.values()) >= 300
    assert len(ROWS) >= 900


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(bad, id=bad.id, marks=() if every_day else pytest.mark.slow)
        for bad, every_day in ROWS.items()
    ],
)
def test_bad_input(bad: BadInput, here: Path) -> None:
    before = sandbox.listing(here)
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        status = main(list(bad.argv))
    said = err.getvalue()
    assert sandbox.listing(here) == before
    assert status == bad.status, said
    assert said.count("\n") == 1, said
    assert said.endswith("\n")
    assert said.startswith("spherelm: ")
    assert said.isascii() or "\x1b" not in said
    assert bad.says.replace("-", "_") in said.replace("-", "_")  # --batch-size is batch_size
    assert out.getvalue() == ""


@pytest.mark.parametrize("words", [["export", "../run"], ["import", "../hf"]])
def test_the_folder_that_one_is_in_is_no_output(
    words: list[str],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where it is empty, and so would be free."""
    monkeypatch.chdir(here / "empty")
    assert main([*words, "--out", "."]) == 2
    assert "is the folder you are in; start from outside of it" in capsys.readouterr().err
    assert list((here / "empty").iterdir()) == []


def test_bad_calls_of_the_api(here: Path) -> None:
    """Values of the wrong type or size are refused as a `UserError`, where they are given."""
    before, wrong, tried = sandbox.listing(here), [], 0
    for bad in calls():
        tried += 1
        try:
            bad.call()
        except UserError as error:
            if "\n" in str(error) or bad.says not in str(error):
                wrong.append(f"{bad.id}: {error}")
        except Exception as error:  # what the test is about: anything else is a bug
            wrong.append(f"{bad.id}: {type(error).__name__}: {error}")
        else:
            wrong.append(f"{bad.id}: accepted")
    assert not wrong, f"{len(wrong)} of {tried}:\n" + "\n".join(wrong)
    assert tried >= 250
    assert sandbox.listing(here) == before
