"""How a run under torchrun ends: signals to torchrun, to its ranks, to both; torchrun killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus import prepare_corpus
from tests.distributed.launch import ROOT, children, environment, torchrun
from tests.training.conftest import flags

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find ranks"),
]

LONG: dict[str, object] = {
    "train__steps": 100_000,
    "train__eval_every": 0,
    "train__checkpoint_every": 0,
}


class Launched:
    """torchrun with two ranks that are in the middle of training."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "run"
        argv = flags(self.out, prepare_corpus(folder), **LONG)
        command = torchrun(2, "-m", "spherelm", *argv)
        self.log = (folder / "log").open("w+")
        patient = {**environment(), "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60"}  # from torch 2.12 on
        self.launcher = subprocess.Popen(command, env=patient, cwd=ROOT, stderr=self.log)
        metrics = self.out / "metrics.jsonl"
        self._until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2)
        self.ranks = children(self.launcher.pid)
        assert len(self.ranks) == 2

    def _until(self, condition: object, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, self.errors()
            assert self.launcher.poll() is None or not self.alive(), self.errors()
            time.sleep(0.01)

    def alive(self) -> list[int]:
        """The ranks that still run."""
        return [pid for pid in getattr(self, "ranks", []) if _runs(pid)]

    def wait(self, seconds: float = 60) -> None:
        """Until torchrun and all ranks have ended."""
        self.launcher.wait(seconds)
        deadline = time.monotonic() + seconds
        while self.alive():
            assert time.monotonic() < deadline, f"still running: {self.errors()}"
            time.sleep(0.02)

    def errors(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text()

    def check_saved(self) -> None:
        """A checkpoint of the last finished step, said once."""
        (saved,) = (self.out / "checkpoints").iterdir()
        step = int(saved.name.removeprefix("step_"))
        assert (self.out / "metrics.jsonl").read_bytes().count(b"\n") == step
        assert self.errors().count("stopped at step") == 1, self.errors()
        assert "forcefully exiting" not in self.errors()


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    group = Launched(tmp_path)
    yield group
    for pid in (group.launcher.pid, *group.alive()):
        if group.launcher.poll() is None or pid != group.launcher.pid:
            os.kill(pid, signal.SIGKILL)
    group.launcher.wait()
    group.log.close()


@pytest.mark.slow
def test_sigterm_to_torchrun_alone(launched: Launched) -> None:
    os.kill(launched.launcher.pid, signal.SIGTERM)
    launched.wait()
    launched.check_saved()


def test_sigterm_to_torchrun_and_its_ranks_and_again(launched: Launched) -> None:
    """As from a scheduler that signals every process of a job: each rank gets it several times."""
    for _ in range(2):
        for pid in (*launched.alive(), launched.launcher.pid):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.05)
    launched.wait()
    launched.check_saved()


def test_ranks_end_after_torchrun_was_killed(launched: Launched) -> None:
    os.kill(launched.launcher.pid, signal.SIGKILL)
    launched.wait(seconds=20)
    launched.check_saved()


@pytest.mark.slow
def test_ctrl_c(launched: Launched) -> None:
    os.kill(launched.launcher.pid, signal.SIGINT)
    launched.wait()
    launched.check_saved()


@pytest.mark.slow
def test_a_signal_to_one_rank_ends_torchrun_with_0(launched: Launched) -> None:
    os.kill(launched.ranks[1], signal.SIGTERM)
    launched.wait()
    launched.check_saved()
    assert launched.launcher.returncode == 0, launched.errors()
