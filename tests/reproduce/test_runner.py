"""A grid of runs that is stopped goes on where it was, whatever stopped it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.paper import sizes, store
from spherelm.paper.points import Point
from spherelm.paper.runner import Job, Runner
from spherelm.runs.run_dir import RunDir

STEPS = 250
PROGRAM = """
import sys
import threading
from pathlib import Path
from tests.reproduce.test_runner import runner
runner(Path(sys.argv[1]), int(sys.argv[2])).run()
"""


def runner(out: Path, workers: int) -> Runner:
    """One run that lasts some seconds."""
    size = sizes.get("debug")
    fields = {"train.steps": STEPS, "train.checkpoint_every": 20, "train.eval_every": 100}
    job = Job("long", override(size.config(Point("ngpt")), fields))
    return Runner([job], None, out, out / "records", workers=workers)


def lines(out: Path) -> list[int]:
    """The steps whose metrics are there."""
    file = out / "long" / "metrics.jsonl"
    if not file.is_file():
        return []
    whole = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line)["step"] for line in whole]


def is_held(out: Path) -> bool:
    """Whether somebody still writes to the run."""
    return '"holder": {' in (out / "long" / ".spherelm").read_text()


@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGKILL), (0, signal.SIGTERM)])
def test_a_grid_that_was_killed_goes_on_from_its_checkpoint(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(workers)]
    with (tmp_path / "out.log").open("w") as out:
        first = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(lines(tmp_path)) < 60:
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(first.pid, number)
    first.wait()
    if number != signal.SIGKILL:
        last = (tmp_path / "out.log").read_text().splitlines()[-1]
        assert last == "stopping; the same command goes on from here"
    if workers:  # its process is told to end, too, and writes a checkpoint first
        while is_held(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    before = lines(tmp_path)
    assert len(before) < STEPS
    assert not store.has(tmp_path / "records", "long")
    newest = max(int(p.name.split("_")[1]) for p in (tmp_path / "long/checkpoints").glob("step_*"))
    assert newest >= 40

    said: list[str] = []
    again = runner(tmp_path, 0)
    again.say = said.append
    assert again.run() == 0
    assert lines(tmp_path) == list(range(1, STEPS + 1))
    assert store.read_one(tmp_path / "records" / "long").finished
    assert said[0] == "0 of 1 run done already"
    assert "0 runs left" in said[-1]
    # What was trained before the kill was not trained again.
    speed = [json.loads(line) for line in RunDir(tmp_path / "long").speed.read_text().splitlines()]
    assert sum(line.get("step") == newest // 2 for line in speed) == 1


def test_a_run_that_somebody_else_trained_counts(tmp_path: Path) -> None:
    size = sizes.get("debug")
    job = size.job(Point("gpt"))
    one = Runner([job], None, tmp_path, tmp_path / "elsewhere", workers=0, say=lambda line: None)
    one.run()
    said: list[str] = []
    other = Runner([job], None, tmp_path, tmp_path / "records", workers=0, say=said.append)
    assert other.is_done(job)
    assert not store.has(tmp_path / "records", job.id)  # asking writes nothing
    assert other.run() == 0
    assert said == ["1 of 1 run done already"]
    assert store.has(tmp_path / "records", job.id)


def test_a_record_without_its_model_is_not_enough_where_models_are_needed(tmp_path: Path) -> None:
    size = sizes.get("debug")
    job = size.job(Point("gpt"))
    Runner([job], None, tmp_path / "a", tmp_path / "records", workers=0, say=lambda _: None).run()
    there = Runner([job], None, tmp_path / "b", tmp_path / "records")
    assert there.is_done(job)
    there.models = [job.id]
    assert not there.is_done(job)


@pytest.mark.parametrize(("seconds", "has_time"), [(None, True), (25.0, True), (15.0, False)])
def test_no_run_is_started_that_would_not_end_in_time(
    seconds: float | None, has_time: bool, tmp_path: Path
) -> None:
    """One such run took ten seconds: a second one would end after twenty."""
    queue = runner(tmp_path, 0)
    (job,) = queue.jobs
    queue.seconds, queue._done, queue._began = seconds, job.flops, time.monotonic() - 10
    assert queue._has_time(job) == has_time


def test_a_run_that_diverged_is_a_result(tmp_path: Path) -> None:
    size = sizes.get("debug")
    config = override(size.config(Point("gpt")), {"optim.lr": 1e30, "train.steps": 8})
    said: list[str] = []
    one = Runner(
        [Job("wild", config)], None, tmp_path, tmp_path / "records", workers=0, say=said.append
    )
    assert one.run() == 0
    assert said[-1].startswith("wild: diverged")
    assert not store.has(tmp_path / "records", "wild")
    assert not store.read_one(tmp_path / "records" / "wild").finished
    assert one.run() == 0
    assert said[-1] == "1 of 1 run done already"


def test_a_run_that_somebody_stopped_is_left_and_not_a_result(tmp_path: Path) -> None:
    said: list[str] = []
    one = runner(tmp_path, workers=1)
    one.say = said.append
    left: list[int] = []
    thread = threading.Thread(target=lambda: left.append(one.run()))
    thread.start()
    deadline = time.monotonic() + 120
    while len(lines(tmp_path)) < 10:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (process,) = one._active
    process.send_signal(signal.SIGTERM)
    thread.join(60)
    assert left == [1]
    assert re.fullmatch(r"long: stopped at \d+%, resumes from there next time", said[-1])
    assert not (tmp_path / "records" / "long").exists()
    assert one.run() == 0
    assert store.has(tmp_path / "records", "long")


def test_a_run_that_failed_is_named_with_its_log(tmp_path: Path) -> None:
    one = runner(tmp_path, workers=1)
    (job,) = one.jobs
    one.jobs = [Job("long", override(job.config, {"model.context": 10**7}))]
    log = tmp_path / "long.log"
    with pytest.raises(UserError, match=f"^long failed; see {re.escape(str(log))}$"):
        one.run()
    assert "too few for one context" in log.read_text()


@pytest.mark.parametrize("kept", [0, 1])
def test_a_record_that_lost_its_end_is_refused(kept: int, tmp_path: Path) -> None:
    """Else an earlier loss would stand for that at the end."""
    job = sizes.get("debug").job(Point("gpt"))
    Runner([job], None, tmp_path, tmp_path / "records", workers=0, say=lambda _: None).run()
    file = tmp_path / "records" / job.id / "metrics.jsonl"
    evaluated = [line for line in file.read_text().splitlines() if "val_loss" in line]
    assert len(evaluated) > 1
    file.write_text("".join(f"{line}\n" for line in evaluated[:kept]))
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged: it has no loss after"):
        store.read_one(file.parent)
