"""Faults of single ranks: a NaN, another configuration, a hang, signals. All are real processes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spherelm.distributed.watch import HUNG
from spherelm.runs.metrics import read_metrics
from tests.corpus import prepare_corpus
from tests.distributed.group import Group
from tests.faults.trials import hold
from tests.training.conftest import flags

Start = Callable[..., Group]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def start(tmp_path: Path, corpus: Path) -> Iterator[Start]:
    """Starts groups that are ended with the test."""
    groups = []

    def start(
        *extra: str, arch: str = "ngpt", fields: dict[str, object] | None = None, **how: object
    ) -> Group:
        folder = tmp_path / f"group-{len(groups)}"
        argv = [*flags(tmp_path / "run", corpus, **(fields or {})), *extra]
        argv = [word.replace("ngpt-debug", f"{arch}-debug") for word in argv]
        group = Group(argv, folder, **how)  # type: ignore[arg-type]
        groups.append(group)
        return group

    yield start
    for group in groups:
        group.end()


def lines(out: Path) -> int:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("layout", [{}, {"parallel__tensor": 2}])
def test_a_nan_is_explained_once(tmp_path: Path, start: Start, layout: dict[str, int]) -> None:
    fields = {"optim__lr": 1e30, "train__checkpoint_every": 1, **layout}
    group = start(arch="gpt", fields=fields)
    assert group.wait() == [3, 3], group.outputs()
    first, second = group.outputs()
    line = first.splitlines()[-1]
    assert "became nan at step" in line or "became inf at step" in line
    assert "last good checkpoint" in line
    assert "embeddings: weights" in line
    assert "block 1: weights" in line
    assert second == "", "only the first rank prints"
    assert all(m["loss"] == m["loss"] for m in read_metrics(tmp_path / "run" / "metrics.jsonl"))


def test_of_two_groups_in_one_folder_one_goes_on(tmp_path: Path, start: Start) -> None:
    """Started together: all ranks of the other end in one line, and nothing of theirs is there."""
    groups = [start(fields={"train__seed": seed}) for seed in (0, 1)]
    ends = [group.wait() for group in groups]
    assert sorted(ends) == [[0, 0], [2, 2]], [group.outputs() for group in groups]
    first, second = groups[ends.index([2, 2])].outputs()
    assert first.count("\n") == 1, first
    assert "is being written by" in first or "already holds a run" in first
    assert second == "", "only the first rank prints"
    run = tmp_path / "run"
    assert f"seed = {ends.index([0, 0])}\n" in (run / "config.toml").read_text()
    steps = [m["step"] for m in read_metrics(run / "metrics.jsonl")]
    assert steps == [*range(1, len(steps) + 1)]


def other_version() -> None:
    import spherelm.distributed.agreement

    spherelm.distributed.agreement.__version__ = "0.0.1"


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (["--optim.lr", "0.5"], "optim.lr is 0.01 on ranks 0, 2 and 0.5 on rank 1"),
        (["--train.seed", "7"], "train.seed is 0 on ranks 0, 2 and 7 on rank 1"),
        (["--model.rope-base", "500"], "model.rope_base is 10000.0 on ranks 0, 2 and 500.0 on"),
        (["--train.batch-size", "6"], "train.batch_size is 3 on ranks 0, 2 and 6 on rank 1"),
        (["--parallel.tensor", "2"], "parallel.tensor is 1 on ranks 0, 2 and 2 on rank 1"),
        (["--data", "OTHER"], "the data's fingerprint is "),
        (["--out", "ELSEWHERE"], "--out is "),
        ([], "spherelm's version is "),
    ],
)
def test_ranks_that_differ_stop_before_the_first_step(
    tmp_path: Path, start: Start, own: list[str], says: str
) -> None:
    if "OTHER" in own:
        own = ["--data", str(prepare_corpus(tmp_path, seed=1))]
    if "ELSEWHERE" in own:
        own = ["--out", str(tmp_path / "elsewhere")]
    fields: dict[str, object] = {"train__batch_size": 3, "optim__lr": 0.01}
    before = {} if own else {1: other_version}
    group = start(fields=fields, size=3, own={1: own}, before=before)
    assert group.wait() == [2, 2, 2], group.outputs()
    first, *others = group.outputs()
    assert first.count("\n") == 1, first
    assert says in first
    assert "rank 1" in first
    assert others == ["", ""]
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_a_rank_that_does_not_start_is_named(tmp_path: Path, start: Start) -> None:
    began = time.monotonic()
    group = start("--parallel.start-timeout", "1.5", size=3, absent=(2,))
    assert group.wait() == [2, 2], group.outputs()
    assert time.monotonic() - began < 20
    assert "rank 2 did not start within 1.5 s (parallel.start_timeout)" in group.outputs()[0]
    assert group.outputs()[1] == ""
    assert not (tmp_path / "run").exists()


LONG: dict[str, object] = {
    "train__steps": 100_000,
    "train__eval_every": 0,
    "train__checkpoint_every": 0,
}


def hang_in_the_data() -> None:
    from spherelm.data.loader import Loader

    read, calls = Loader.__next__, []

    def next_batch(self: Loader) -> object:
        calls.append(1)
        if len(calls) == 4:
            time.sleep(1000)
        return read(self)

    Loader.__next__ = next_batch  # type: ignore[assignment,method-assign]


@pytest.mark.parametrize("who", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_rank_that_hangs_in_its_data_is_named(start: Start, who: int) -> None:
    group = start("--parallel.timeout", "1.5", fields=LONG, before={who: hang_in_the_data})
    assert group.wait(30) == [HUNG, HUNG], group.outputs()
    speaker, other = group.outputs()[1 - who], group.outputs()[who]
    line = speaker.splitlines()[-1]
    assert f"rank {who} hangs: it is in step 4, reading the batch" in line
    assert "hangs" not in other


def test_hangs_at_random_moments(tmp_path: Path, corpus: Path) -> None:
    """One of three ranks is stopped, at any step and moment: it is named, and no other."""

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        who, step = draw.randrange(3), draw.randint(1, 30)
        out = tmp_path / f"run-{number}"
        fields = LONG | {"train__batch_size": 3, "train__checkpoint_every": 7}
        argv = [*flags(out, corpus, **fields), "--parallel.timeout", "2"]
        argv += ["--parallel.start-timeout", "10"]
        group = Group(argv, tmp_path / f"group-{number}", size=3)
        try:
            until(lambda: lines(out) >= step)
            time.sleep(draw.random() / 20)
            began = time.monotonic()
            group.ranks[who].kill(signal.SIGSTOP)
            others = [rank for n, rank in enumerate(group.ranks) if n != who]
            statuses = [rank.wait(60) for rank in others]
            seconds = time.monotonic() - began
            said = [rank.output() for rank in others if "hangs" in rank.output()]
            right = f"rank {who} hangs: "
            if statuses != [HUNG, HUNG] or len(said) != 1 or right not in said[0]:
                return f"rank {who} at step {step}: {statuses}, {said or group.outputs()}"
            return f"named after {seconds:.0f} s" if seconds > 40 else None
        finally:
            group.end()

    # Three processes each, so that not as many at once as there are cores.
    at_once = max(1, (os.cpu_count() or 1) // 4)
    hold("a rank that hangs is named", trial, sample=1, full=60, at_once=at_once)


def test_signals_at_random_moments(tmp_path: Path, corpus: Path) -> None:
    """SIGTERM to some ranks, some times: a checkpoint of the last finished step, and exit 0."""

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        out = tmp_path / f"run-{number}"
        fields = LONG | {"train__checkpoint_every": draw.choice((0, 2))}
        group = Group(flags(out, corpus, **fields), tmp_path / f"group-{number}")
        try:
            step = draw.randint(1, 20)
            until(lambda: lines(out) >= step)
            for _ in range(draw.randint(1, 4)):
                time.sleep(draw.random() / 10)
                for rank in draw.sample(group.ranks, draw.randint(1, 2)):
                    if rank.alive():
                        rank.kill(signal.SIGTERM)
            statuses = group.wait()
            steps = [int(p.name.removeprefix("step_")) for p in (out / "checkpoints").glob("s*")]
            if statuses != [0, 0] or max(steps, default=0) != lines(out):
                return f"{statuses}, saved {steps} of {lines(out)}: {group.outputs()}"
            return "the second rank spoke" if group.outputs()[1] else None
        finally:
            group.end()

    at_once = max(1, (os.cpu_count() or 1) // 3)
    hold("signals to ranks save and exit with 0", trial, sample=1, full=100, at_once=at_once)


def test_a_killed_rank_ends_the_other_in_one_line(tmp_path: Path, start: Start) -> None:
    group = start(fields=LONG)
    until(lambda: lines(tmp_path / "run") > 1)
    group.ranks[1].kill(signal.SIGKILL)
    assert group.ranks[0].wait(30) == HUNG, group.outputs()
    assert group.outputs()[0].count("\n") == 2, group.outputs()  # that it began, and this
    assert "lost another process of this run" in group.outputs()[0]


def little_memory() -> None:
    import spherelm.free_memory

    spherelm.free_memory.free_host_memory = lambda: 1000


def test_a_rank_without_memory_is_named_by_the_first(tmp_path: Path, start: Start) -> None:
    group = start(before={1: little_memory})
    assert group.wait() == [2, 2], group.outputs()
    assert "rank 1: a step of this run needs at least" in group.outputs()[0]
    assert group.outputs()[1] == ""
    assert not (tmp_path / "run").exists()


def slow_steps() -> None:
    from spherelm.data.loader import Loader

    read = Loader.__next__

    def next_batch(self: Loader) -> object:
        time.sleep(0.4)
        return read(self)

    Loader.__next__ = next_batch  # type: ignore[assignment,method-assign]


def test_signals_during_a_long_step_still_save_it(tmp_path: Path, start: Start) -> None:
    """Twice to each rank, as when a scheduler signals all and torchrun passes on its own."""
    group = start(fields=LONG, before={0: slow_steps, 1: slow_steps})
    until(lambda: lines(tmp_path / "run") > 0)
    for _ in range(3):
        group.kill(signal.SIGTERM)
        time.sleep(0.1)
    began = time.monotonic()
    assert group.wait() == [0, 0], group.outputs()
    assert time.monotonic() - began < 5
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert int(saved.name.removeprefix("step_")) == lines(tmp_path / "run")
    assert "stopped at step" in group.outputs()[0]
    assert group.outputs()[1] == ""
