"""The verbs themselves: what --force may not replace, and what an input may not become."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.folders import kinds, place
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run

TRAIN = "--preset debug --steps 1 --train.batch-size 1 --train.eval-sequences 1 --train.device cpu"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something of every verb: all/run, tok, hf, imp, cmp, a folder of texts, and a file."""
    folder = tmp_path_factory.mktemp("verbs")
    write_run(folder / "all" / "run", byte_model())
    (prepare_corpus(folder, count=100)).rename(folder / "tok")
    (folder / "text.txt").unlink()
    (folder / "note").touch()
    (folder / "books").mkdir()
    (folder / "books" / "one.txt").write_text("the sphere turns the surface. " * 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (
            f"train --out trained --data tok --train.no-tensorboard {TRAIN}",
            "export trained --out hf",
            "import hf --out imp",
            f"compare --out cmp --data tok --train.no-tensorboard {TRAIN} --json",
        ):
            assert main(line.split()) == 0
    return folder


def everything(folder: Path) -> dict[str, str]:
    """Every path and what is in it."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        if p.is_file()
        else ""
        for p in sorted(folder.rglob("*"))
    }


REFUSED = {
    "export trained --out trained --force": "is an input",
    "export all/run --out all --force": "holds the input",
    "export trained --out trained/hf": "lies inside the input",
    "export trained/checkpoints/step_1 --out trained/hf": "lies inside the input",
    "export trained --out imp --force": "was written by `spherelm import`",
    "export trained --out tok --force": "was written by `spherelm prepare`",
    "export trained --out books --force": "holds one.txt, which `spherelm export` did not write",
    "export trained --out . --force": "holds the input",
    "export trained --out hf": "already holds an export",
    "import hf --out hf --force": "is an input",
    "import hf --out hf/run --force": "lies inside the input",
    "import hf --out trained --force": "was written by `spherelm train`",
    "import hf --out imp": "already holds an imported run",
    f"train --out tok --data tok --force {TRAIN}": "is an input",
    f"train --out tok/run --data tok {TRAIN}": "lies inside the input",
    f"train --out tok --force {TRAIN} --data all/run/../../tok": "is an input",
    f"train --out hf --data tok --force {TRAIN}": "holds README.md, which `spherelm train` did not",
    f"train --out imp --data tok --force {TRAIN}": "was written by `spherelm import`",
    f"train --out cmp --data tok --force {TRAIN}": "was written by `spherelm compare`",
    f"train --out cmp/gpt --data tok --force {TRAIN}": "lies inside",
    "train --out cmp/gpt --data tok --resume auto": "lies inside",
    f"train --out all --data tok --force {TRAIN}": "holds run, which `spherelm train` did not",
    f"train --out trained --data tok --force --config trained/config.toml {TRAIN}": "holds the inp",
    f"compare --out trained --data tok --force {TRAIN}": "was written by `spherelm train`",
    f"compare --out books --data tok --force {TRAIN}": "holds one.txt",
    f"compare --out tok --data tok --force {TRAIN}": "is an input",
    "prepare books --out books": "is an input",
    "prepare books --out books/tok": "lies inside the input",
    "prepare books/one.txt --out books": "holds the input",
    "prepare books --out hf": "holds README.md, which `spherelm prepare` did not write",
    "prepare books --out trained": "was written by `spherelm train`",
    "eval length trained --books books --lengths 8 --out trained": "is an input",
    "eval length trained --books books --lengths 8 --out books": "is an input",
    "eval length trained --books books --lengths 8 --out hf": "holds README.md, which `spherelm ev",
    "prepare books --out note/tok": "which is a file; choose another --out",
    "inspect trained --out note/in": "which is a file; choose another --out",
    "report trained --out note/in": "which is a file; choose another --out",
    "reproduce parameters --size nano --out note/in": "which is a file; choose another",
    f"compare --data tok --out note/cmp {TRAIN}": "which is a file; choose another --out",
}


def test_nothing_is_replaced_that_the_verb_did_not_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    before = everything(folder)
    wrong = []
    for line, message in REFUSED.items():
        status, said = main(line.split()), capsys.readouterr().err
        if (status, said.count("\n")) != (2, 1) or message not in said:
            wrong.append(f"{line}: {status} {said}")
        if everything(folder) != before:
            wrong.append(f"{line}: the folder has changed")
            break
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "work"),
    [
        (f"train --data tok {TRAIN}", "spherelm.training.loop.build_state"),
        ("train --data tok --init-from trained", "spherelm.training.loop.build_state"),
        ("export trained", "spherelm.hf.export.read_weights"),
        ("import hf", "spherelm.hf.import_run.read_weights"),
    ],
)
def test_no_weights_are_made_or_read_for_a_folder_that_cannot_be_written(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    work: str,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(work, lambda *given: pytest.fail("minutes, for a large model"))
    before = everything(folder)
    assert main([*line.split(), "--out", "note/new"]) == 2
    said = capsys.readouterr().err
    assert "which is a file; choose another --out" in said
    assert said.count("\n") == 1
    assert everything(folder) == before


def test_of_two_trainings_the_second_is_told_before_its_model_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        "spherelm.training.loop.build_state",
        lambda *given: pytest.fail("minutes, for a large model"),
    )
    with place.owned(folder / "new", kinds.TRAIN):
        assert main(f"train --data tok --out new {TRAIN}".split()) == 2
    assert "new is being written by `spherelm train`" in capsys.readouterr().err
    assert not (folder / "new").exists()


def test_the_own_output_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names = {p.name for p in folder.iterdir()}
    for line in (
        "export trained --out hf --force",
        "export trained --out hf --fold --force",
        "export trained --out hf --force",  # also a folded one is known
        "import hf --out imp --force",
        f"train --out trained --data tok --force --train.no-tensorboard {TRAIN}",
        f"compare --out cmp --data tok --force --train.no-tensorboard {TRAIN} --json",
        "eval length trained --books books --lengths 8 --out length --device cpu",
        "eval length trained --books books --lengths 8 --out length --device cpu",
    ):
        assert main(line.split()) == 0, line
    assert {p.name for p in folder.iterdir()} == names | {"length"}


def test_what_was_begun_with_foreign_files_beside_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming removes nothing, so a log in the folder does not stand in its way."""
    monkeypatch.chdir(folder)
    (folder / "trained" / "slurm-17.out").write_text("mine")
    line = f"train --out trained --data tok --resume auto --train.no-tensorboard {TRAIN} --steps 2"
    assert main(line.split()) == 0
    assert (folder / "trained" / "slurm-17.out").read_text() == "mine"
