"""A disk that is full at any place: one line, status 2, and no half of a folder that must be whole.

The limit on the size of files stands for the full disk: every write beyond it fails, wherever that
happens to be. Files from one byte up to more than a whole checkpoint are tried.
"""

from __future__ import annotations

import functools
import os
import random
import resource
import shutil
from pathlib import Path

import pytest

from tests.corpus import prepare_corpus
from tests.faults.trials import hold
from tests.processes import Spherelm
from tests.saved_runs import byte_model, write_run
from tests.training.conftest import flags


def _limit(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a run and its export."""
    from spherelm.hf.export import export_to_hf

    folder = tmp_path_factory.mktemp("full disk")
    prepare_corpus(folder, count=600)
    write_run(folder / "run", byte_model())
    export_to_hf(folder / "run", folder / "hf")
    (folder / "books").mkdir()
    shutil.copy(folder / "text.txt", folder / "books" / "one.txt")
    return folder


def commands(folder: Path, out: Path) -> dict[str, list[str]]:
    """What writes to the disk, each with its output at `out`."""
    name = str(out)
    return {
        "train": flags(out, folder / "data"),
        "prepare": ["prepare", str(folder / "text.txt"), "--out", name, "--workers", "1"],
        "export": ["export", str(folder / "run"), "--out", name],
        "import": ["import", str(folder / "hf"), "--out", name],
        "eval length": [
            *("eval", "length", str(folder / "run"), "--books", str(folder / "books")),
            *("--lengths", "64", "--device", "cpu", "--out", name),
        ],
        "train, with TensorBoard": [
            *(word for word in flags(out, folder / "data") if word != "--train.no-tensorboard"),
        ],
    }


WHOLE_OR_ABSENT = ("export", "import")


def test_a_full_disk_is_one_line(prepared: Path, tmp_path: Path) -> None:
    verbs = list(commands(prepared, tmp_path))

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        verb = verbs[number % len(verbs)]
        most = 0 if number < len(verbs) else int(10 ** draw.uniform(0, 5.5))
        out = tmp_path / f"out{number}"
        pipe = tmp_path / f"said{number}"  # which has no limit
        os.mkfifo(pipe)
        before = functools.partial(_limit, most)
        process = Spherelm(commands(prepared, out)[verb], pipe, before=before)
        said = process.output()  # until it ends
        status, last = process.wait(), said.strip().splitlines()[-1:] or [""]
        if status == 0:
            return None
        if status != 2 or "Traceback" in said or not last[0].startswith("spherelm: "):
            return f"{verb} with files of at most {most} bytes: status {status}, {said[-500:]}"
        if "cannot read or write" in last[0]:
            return f"{verb} with files of at most {most} bytes does not say which file: {last[0]}"
        if said.count("spherelm: ") != 1:
            return f"{verb} with files of at most {most} bytes said more than once: {said}"
        if verb in WHOLE_OR_ABSENT and out.exists():
            return f"{verb} with files of at most {most} bytes left {sorted(os.listdir(out))}"
        if verb in WHOLE_OR_ABSENT and list(tmp_path.glob(f".out{number}*")):
            return f"{verb} with files of at most {most} bytes left its temporary folder"
        return None

    hold("a full disk is one line", trial, sample=12, full=200)
