"""`torchrun -m spherelm train` as a user meets it: errors, restarts, layouts that cannot be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from spherelm.cli import main
from spherelm.config import ParallelConfig
from spherelm.distributed import processes
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.model.config import ModelConfig
from spherelm.model.sphere import check_rows_whole, matrices
from spherelm.model.transformer import Transformer
from tests.corpus import prepare_corpus
from tests.distributed.launch import ROOT, children, environment, run_together, torchrun
from tests.training.conftest import flags

MORE = {"train__steps": 30, "train__checkpoint_every": 5, "train__eval_every": 15}


def test_a_killed_rank_is_restarted_and_nothing_changes(tmp_path: Path) -> None:
    """Also where the run replaces another: --force holds for the run that it began."""
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc to find the ranks")
    corpus = prepare_corpus(tmp_path)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    run_together(2, "-m", "spherelm", *flags(alone, corpus, **MORE)).check_returncode()
    shutil.copytree(alone, killed)
    argv = [*flags(killed, corpus, **MORE), "--force"]
    command = torchrun(2, "-m", "spherelm", *argv, restarts=1)
    group = subprocess.Popen(
        command, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not checkpoints_of(killed) & {"step_10", "step_15"} or "step_30" in checkpoints_of(
        killed
    ):
        assert time.monotonic() < deadline
        assert group.poll() is None
        time.sleep(0.01)
    os.kill(children(group.pid)[-1], signal.SIGKILL)
    _, errors = group.communicate(timeout=180)
    assert group.returncode == 0, errors
    assert "resuming from" in errors
    assert (alone / "metrics.jsonl").read_bytes() == (killed / "metrics.jsonl").read_bytes()


def checkpoints_of(run: Path) -> set[str]:
    folder = run / "checkpoints"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


@pytest.mark.slow  # tests/training/test_restart.py has it without torchrun
def test_a_restart_does_not_override_a_refusal(tmp_path: Path) -> None:
    """Refused, started again by torchrun, refused again: the run that was there is as it was."""
    corpus, out = prepare_corpus(tmp_path), tmp_path / "run"
    assert main(flags(out, corpus, train__steps=4)) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    argv = flags(out, corpus, train__steps=4, optim__lr=0.5)
    done = run_together(1, "-m", "spherelm", *argv, restarts=1)
    assert done.returncode != 0
    assert done.stderr.count("already holds a run") == 2, done.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_an_error_reaches_the_user_as_that_error(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path)
    argv = flags(tmp_path / "run", corpus, parallel__tensor=4, model__n_heads=2)
    done = run_together(4, "-m", "spherelm", *argv)
    assert done.returncode != 0
    assert done.stderr.count("parallel.tensor = 4 must divide model.n_heads = 2") == 1, (
        "said by one"
    )
    assert not (tmp_path / "run").exists()


def test_a_split_row_vector_is_an_error_at_start_up(single_rank_group: None) -> None:
    model = Transformer(ModelConfig(d_model=8, n_heads=2, n_layers=1, vocab_size=8, context=8))
    mesh = init_device_mesh("cpu", (1,))
    rows = distribute_tensor(model.E_input.detach(), mesh, [Shard(0)])
    model.E_input = nn.Parameter(rows)
    check_rows_whole(matrices(model))
    columns = distribute_tensor(model.blocks[0].attention.W_q.detach(), mesh, [Shard(1)])
    model.blocks[0].attention.W_q = nn.Parameter(columns)
    with pytest.raises(UserError, match=r"W_q is sharded as .*splits its row vectors"):
        check_rows_whole(matrices(model))


def test_a_group_that_was_there_before_stays(single_rank_group: None) -> None:
    """As of a script that trains a model in between."""
    with Processes(ParallelConfig(), "cpu"):
        pass
    assert torch.distributed.is_initialized()


@pytest.mark.parametrize("name", ["MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"])
def test_a_launcher_that_does_not_say_where_we_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a scheduler's own: each process has a GPU to choose, and others to meet."""
    said = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for variable, value in {**said, "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv(name)
    monkeypatch.setattr(processes, "choose_device", lambda _: torch.device("cuda"))
    with pytest.raises(UserError, match=f"RANK is set, but {name} is not"):
        Processes(ParallelConfig(), "auto")


@pytest.fixture
def single_rank_group(tmp_path: Path) -> object:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield
    torch.distributed.destroy_process_group()
