"""Every verb that writes a folder, killed at any act on its files: old or new, and it goes on.

The moments are chosen among all acts of the verb on the folder (opening, making, renaming and
removing a name), as an undisturbed run of the same command counted them.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.corpus import prepare_corpus, sentences
from tests.faults.trials import ALL, hold
from tests.faults.watch import Watch
from tests.processes import run
from tests.saved_runs import byte_model, write_run

Content = dict[str, str]

RESULTS = (  # what differs from one repetition to the next
    "speed.jsonl",
    "env.json",
    "tensorboard",
    "state.json",
    "manifest.json",
    "report.html",
    "result.json",
    "loss-seconds.png",
)


def content(folder: Path, leave_out: tuple[str, ...] = ()) -> Content:
    """Every file of a folder and what is in it; its mark aside."""
    return {
        str(path.relative_to(folder)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".spherelm"
        if not any(part in leave_out for part in path.relative_to(folder).parts)
    }


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    if path.suffix == ".safetensors":  # its header lists the tensors in any order
        for name, tensor in sorted(load_file(path).items()):
            digest.update(name.encode() + tensor.view(-1).view(torch.uint8).numpy().tobytes())
    else:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Case:
    """A command that writes `place`/out, and how often it acts on it."""

    argv: Callable[[Path], list[str]]
    """The command that is killed."""
    again: Callable[[Path], list[str]]
    """The command that goes on."""
    before: Path | None
    """What lies at `out` when the command starts; None for nothing."""
    after: Content
    """What it writes."""
    acts: int
    leave_out: tuple[str, ...] = ()
    stays_old: bool = True
    """Whether `out` must be the old or the new at any moment (or is only begun anew)."""

    def trial(self, folder: Path, number: int) -> str | None:
        """Kill the command at one of its acts, look, and let it go on: what went wrong."""
        place = folder / str(number)
        place.mkdir()
        out, log = place / "out", folder / f"{number}.log"
        old: Content = {}
        if self.before is not None:
            shutil.copytree(self.before, out)
            old = content(out, self.leave_out)
        moment = random.Random(number).randint(1, self.acts)
        status, said = run(self.argv(out), log, Watch(place, die_at=moment).begin)
        if status != -signal.SIGKILL:
            return f"not killed at act {moment} of {self.acts} but ended with {status}: {said}"
        found = content(out, self.leave_out) if out.is_dir() else {}
        found = {name: digest for name, digest in found.items() if not name.endswith(".writing")}
        if self.stays_old and found not in (old, self.after):
            return f"killed at act {moment}, it left neither the old nor the new: {sorted(found)}"
        if old and not out.is_dir():
            return f"killed at act {moment}, it left nothing"
        status, said = run(self.again(out), log)
        if status and not (found == self.after and "already holds" in said):
            return f"killed at act {moment}, it does not go on: {said}"
        if other := {name for name, _ in content(out, self.leave_out).items() ^ self.after.items()}:
            return f"killed at act {moment}, it goes on to something else in {sorted(other)}"
        if (left := sorted(p.name for p in place.iterdir())) != ["out"]:
            return f"killed at act {moment}, it leaves {left}"
        shutil.rmtree(place)
        return None


def case(
    folder: Path,
    argv: Callable[[Path], list[str]],
    again: Callable[[Path], list[str]] | None = None,
    before: Path | None = None,
    leave_out: tuple[str, ...] = (),
    stays_old: bool = True,
) -> Case:
    """Run a command undisturbed, to know what it writes and how often it acts."""
    place = folder / "undisturbed"
    place.mkdir()
    if before is not None:
        shutil.copytree(before, place / "out")
    watch = Watch(place)
    status, said = run(argv(place / "out"), folder / "log", watch.begin)
    assert status == 0, said
    after = content(place / "out", leave_out)
    assert [p.name for p in place.iterdir()] == ["out"]
    return Case(argv, again or argv, before, after, watch.counted(), leave_out, stays_old)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs that differ."""
    folder = tmp_path_factory.mktemp("runs")
    return (
        write_run(folder / "one", byte_model(), step=7),
        write_run(folder / "two", byte_model(n_layers=1), step=9),
    )


@pytest.fixture(scope="module")
def exports(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Their exports."""
    from spherelm.hf.export import export_to_hf

    folder = tmp_path_factory.mktemp("exports")
    return export_to_hf(runs[0], folder / "one"), export_to_hf(runs[1], folder / "two")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_corpus(tmp_path_factory.mktemp("corpus"), count=600)


def test_prepare(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(sentences(400))

    def argv(out: Path) -> list[str]:
        more = ["--shard-tokens", "3000", "--val-fraction", "0.2", "--json"]
        return ["prepare", str(text), "--out", str(out), *more]

    killed = case(tmp_path, argv, stays_old=False)
    hold("kill -9 of prepare", lambda n: killed.trial(tmp_path, n), sample=3, full=130)


@pytest.mark.parametrize("new", [True, False], ids=["new", "force"])
def test_export(
    new: bool, runs: tuple[Path, Path], exports: tuple[Path, Path], tmp_path: Path
) -> None:
    def argv(out: Path) -> list[str]:
        return ["export", str(runs[1]), "--out", str(out), *([] if new else ["--force"])]

    killed = case(tmp_path, argv, before=None if new else exports[0])
    promise = f"kill -9 of export {'to a new folder' if new else '--force'}"
    hold(promise, lambda n: killed.trial(tmp_path, n), sample=3, full=40 if new else 90)


@pytest.mark.parametrize("new", [True, False], ids=["new", "force"])
def test_import(new: bool, exports: tuple[Path, Path], tmp_path: Path) -> None:
    def argv(out: Path, source: Path = exports[1]) -> list[str]:
        return ["import", str(source), "--out", str(out), *([] if new else ["--force"])]

    before = None
    if not new:
        before = tmp_path / "before"
        assert run(argv(before, exports[0]), tmp_path / "log")[0] == 0
    killed = case(tmp_path, argv, before=before, leave_out=("env.json", "manifest.json"))
    promise = f"kill -9 of import {'to a new folder' if new else '--force'}"
    hold(promise, lambda n: killed.trial(tmp_path, n), sample=3, full=30 if new else 60)


def test_eval(runs: tuple[Path, Path], tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "one.txt").write_text(sentences(30))

    def argv(out: Path, run_: Path = runs[1]) -> list[str]:
        more = ["--books", str(books), "--lengths", "8", "16", "--limit", "1", "--out", str(out)]
        return ["eval", "length", str(run_), "--device", "cpu", *more]

    before = tmp_path / "before"
    assert run(argv(before, runs[0]), tmp_path / "log")[0] == 0
    # The picture says when it was drawn; the two files are replaced one after the other.
    killed = case(tmp_path, argv, before=before, leave_out=("length.png",))
    hold("kill -9 of eval", lambda n: killed.trial(tmp_path, n), sample=2, full=70)


def comparison(corpus: Path, *more: str) -> Callable[[Path], list[str]]:
    settings = ["--preset", "debug", "--steps", "2", "--data", str(corpus), "--json"]
    settings += ["--train.no-tensorboard", "--train.eval-sequences", "2", "--train.batch-size", "2"]
    return lambda out: ["compare", "--out", str(out), *settings, *more]


@pytest.mark.parametrize("new", [False, True] if ALL in os.environ else [False])
def test_compare(new: bool, corpus: Path, tmp_path: Path) -> None:
    before = None
    if not new:
        before = tmp_path / "before"
        assert run(comparison(corpus, "--seed", "1")(before), tmp_path / "log")[0] == 0
    killed = case(
        tmp_path,
        comparison(corpus, *([] if new else ["--force"])),
        again=comparison(corpus, *(["--resume", "auto"] if new else ["--force"])),
        before=before,
        leave_out=RESULTS,
        stays_old=False,
    )
    promise = f"kill -9 of compare{'' if new else ' --force'}"
    hold(promise, lambda n: killed.trial(tmp_path, n), sample=1, full=40)


@pytest.mark.parametrize("new", [True, False], ids=["new", "force"])
def test_train_while_its_folder_is_made(new: bool, corpus: Path, tmp_path: Path) -> None:
    def argv(out: Path, seed: int = 0) -> list[str]:
        fields = ["--preset", "debug", "--steps", "2", "--data", str(corpus), "--seed", str(seed)]
        fields += ["--train.eval-sequences", "2", "--train.batch-size", "2"]
        how = ["--resume", "auto"] if new else ["--force"]
        return ["train", "--out", str(out), "--train.no-tensorboard", *fields, *how]

    before = None
    if not new:
        before = tmp_path / "before"
        assert run(argv(before, seed=1), tmp_path / "log")[0] == 0
    killed = case(tmp_path, argv, before=before, leave_out=RESULTS, stays_old=False)
    promise = f"kill -9 of train{' --resume auto' if new else ' --force'} at any file it makes"
    hold(promise, lambda n: killed.trial(tmp_path, n), sample=3, full=60)
