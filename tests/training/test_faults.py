"""Faults, on real processes: killed at any moment, a full disk, flipped bits, a loss of NaN."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from spherelm.runs.metrics import read_metrics
from tests.processes import Spherelm, run
from tests.training.conftest import flags

KILLS = 10


def newest_step(out: Path) -> int:
    steps = [int(p.name.removeprefix("step_")) for p in (out / "checkpoints").glob("step_*")]
    return max(steps, default=0)


def test_kill_9_at_ten_moments_changes_nothing(tmp_path: Path, corpus: Path) -> None:
    """Five kills fall into the writing of a checkpoint, five after a random number of steps."""
    # A checkpoint at every step, so that kills are likely to hit one, and enough steps for all.
    more = {"train__steps": 80, "train__checkpoint_every": 1, "train__eval_every": 10}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(flags(whole, corpus, **more), tmp_path / "log")[0] == 0
    draw = random.Random(0)
    while_writing = 0
    for number in range(KILLS):
        before = newest_step(killed)
        process = Spherelm([*flags(killed, corpus, **more), "--resume", "auto"], tmp_path / "log")
        if number % 2:
            writing = killed / "checkpoints"
            alive = process.wait_until(lambda: any(writing.glob(".step_*.writing")))  # noqa: B023
            while_writing += alive
        else:
            target = before + draw.randint(1, 3)
            alive = process.wait_until(lambda: newest_step(killed) >= target)  # noqa: B023
        assert alive, f"the run ended before kill {number}: {process.output()}"
        process.kill(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert newest_step(killed) >= before, "a finished checkpoint was lost"
    assert while_writing == KILLS // 2
    last = newest_step(killed)
    status, output = run([*flags(killed, corpus, **more), "--resume", "auto"], tmp_path / "log")
    assert status == 0, output
    assert f"resuming from {killed}/checkpoints/step_{last}" in output
    (a,), (b,) = (out.glob("checkpoints/step_80/*.safetensors") for out in (whole, killed))
    first, second = load_file(a), load_file(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (whole / "metrics.jsonl").read_bytes() == (killed / "metrics.jsonl").read_bytes()
    assert not list((killed / "checkpoints").glob(".*")), "leftovers of killed writes remain"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB: room for one checkpoint of a tiny run (170 kB), not for three."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_leaves_the_checkpoint_before_it(
    tmp_path: Path, small_disk: Path, corpus: Path
) -> None:
    out = small_disk / "run"
    status, output = run(flags(out, corpus, train__keep_last=9), tmp_path / "log")
    assert status == 2, output
    last_line = output.splitlines()[-1]
    assert "No space left on device" in last_line
    kept = sorted(p.name for p in (out / "checkpoints").iterdir())
    assert kept, "no checkpoint survived"
    assert f"the last good checkpoint is {out}/checkpoints/{kept[-1]}" in last_line
    assert all(name.startswith("step_") for name in kept), "a half checkpoint remains"
    elsewhere = tmp_path / "moved"
    shutil.copytree(out, elsewhere)
    status, output = run([*flags(elsewhere, corpus), "--resume", "auto"], tmp_path / "log")
    assert status == 0, output
    assert f"resuming from {elsewhere}/checkpoints/{kept[-1]}" in output


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, Path.unlink])
@pytest.mark.parametrize("part", ["*.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_gone_on_from(
    tmp_path: Path, corpus: Path, damage: object, part: str
) -> None:
    out = tmp_path / "run"
    assert run(flags(out, corpus), tmp_path / "log")[0] == 0
    metrics, weights = (out / "metrics.jsonl").read_bytes(), whole(out)
    (victim,) = (out / "checkpoints" / "step_12").glob(part)
    damage(victim)  # type: ignore[operator]
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    status, output = run([*flags(out, corpus), "--resume", "strict"], tmp_path / "log")
    assert status == 2, output
    assert output.count("\n") == 1
    assert f"step_12 is damaged: {victim.name}: it" in output
    assert "the one before is step_8" in output
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    status, output = run([*flags(out, corpus), "--resume", "auto"], tmp_path / "log")
    assert status == 0, output
    assert f"step_12 is damaged: {victim.name}: it" in output
    assert "now step_12.damaged" in output
    assert f"resuming from {out}/checkpoints/step_8" in output
    assert (out / "metrics.jsonl").read_bytes() == metrics
    assert all(torch.equal(tensor, weights[name]) for name, tensor in whole(out).items())


def whole(out: Path) -> dict[str, torch.Tensor]:
    (shard,) = (out / "checkpoints" / "step_12").glob("*.safetensors")
    return {name: tensor.clone() for name, tensor in load_file(shard).items()}  # not of the file


def test_a_damaged_shard_is_refused_by_name(tmp_path: Path, corpus: Path) -> None:
    for damage in (flip_a_bit, truncate):
        data = tmp_path / damage.__name__
        shutil.copytree(corpus, data)
        (victim,) = data.glob("train-*.tokens")
        damage(victim)
        status, output = run(flags(tmp_path / "run", data), tmp_path / "log")
        assert status == 2, output
        assert output.count("\n") == 1
        assert victim.name.removesuffix(".tokens") in output
        assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    more = {"model__arch": "gpt", "optim__lr": 1e30, "train__checkpoint_every": 1}
    argv = [a.replace("ngpt-debug", "gpt-debug") for a in flags(out, corpus, **more)]
    status, output = run(argv, tmp_path / "log")
    assert status == 3, output
    message = output.splitlines()[-1]
    assert "became nan at step" in message or "became inf at step" in message
    assert "block 0: weights" in message
    good = newest_step(out)
    if good:
        assert f"last good checkpoint: {out}/checkpoints/step_{good}" in message
    assert all(line["loss"] == line["loss"] for line in read_metrics(out / "metrics.jsonl"))
    for shard in out.glob("checkpoints/*/*.safetensors"):
        assert all(bool(torch.isfinite(t).all()) for t in load_file(shard).values())
