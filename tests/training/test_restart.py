"""`torchrun` starts its processes again when one has failed: which runs that may go on with."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.runs.run_dir import RunDir
from spherelm.training.loop import train
from tests.training.conftest import tiny
from tests.training.same_run import assert_same_run


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launch:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    names = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in {**names, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))
    return Launch(monkeypatch, tmp_path)


class Launch:
    """The environment that torchrun gives its processes."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch, self._folder = patch, folder

    def __call__(self, name: str, restarts: int) -> None:
        file = self._folder / name / f"attempt_{restarts}" / "0" / "error.json"
        self._patch.setenv("TORCHELASTIC_RUN_ID", "none")  # what it is unless the user sets it
        self._patch.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))
        self._patch.setenv("TORCHELASTIC_ERROR_FILE", str(file))

    def end(self) -> None:
        """From now on processes are started without torchrun."""
        for name in ("RANK", "WORLD_SIZE"):
            self._patch.delenv(name)


def contents(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_one_process_trains_as_without_torchrun(
    algorithm: str, tmp_path: Path, dataset: TokenDataset, launch: Launch
) -> None:
    run = override(tiny("ngpt"), {"optim.algorithm": algorithm, "train.precision": "bf16"})
    launch("only", restarts=0)
    train(run, dataset, tmp_path / "torchrun")
    launch.end()
    train(run, dataset, tmp_path / "alone")
    assert_same_run(tmp_path / "torchrun", tmp_path / "alone")


def test_a_restart_goes_on_with_nothing_but_the_run_it_began(
    tmp_path: Path, dataset: TokenDataset, launch: Launch
) -> None:
    run, out = tiny("ngpt"), tmp_path / "run"
    launch("first", restarts=0)
    train(run, dataset, out)
    before = contents(out)
    other = override(run, {"optim.lr": 0.5})
    for name, restarts in (("second", 0), ("second", 1)):
        launch(name, restarts)
        for refused in (run, other):
            with pytest.raises(UserError, match="already holds a run; continue it with"):
                train(refused, dataset, out)
        with pytest.raises(UserError, match=r"cannot resume with optim.lr = 0.5"):
            train(other, dataset, out, resume="auto")
    assert contents(out) == before
    shutil.copytree(out, tmp_path / "whole")
    shutil.rmtree(out / "checkpoints" / "step_12")
    launch("first", restarts=1)
    with pytest.raises(UserError, match=r"cannot resume with optim.lr = 0.5"):
        train(other, dataset, out)
    train(run, dataset, out)
    assert_same_run(tmp_path / "whole", out)


def test_a_restarted_force_replaces_what_was_there_and_nothing_else(
    tmp_path: Path, dataset: TokenDataset, launch: Launch
) -> None:
    out = tmp_path / "run"
    old = override(tiny("ngpt"), {"train.steps": 2})
    new: RunConfig = tiny("ngpt")
    launch("first", restarts=0)
    train(old, dataset, out)
    launch("second", restarts=1)  # its first start died before it came to replace anything
    train(new, dataset, out, force=True)
    assert RunDir(out).read_config() == new
    shutil.copytree(out, tmp_path / "whole")
    shutil.rmtree(out / "checkpoints" / "step_12")
    started = (out / "env.json").read_bytes()
    launch("second", restarts=2)  # now it is its own run: gone on with, not begun anew
    train(new, dataset, out, force=True)
    assert (out / "env.json").read_bytes() == started
    assert_same_run(tmp_path / "whole", out)
