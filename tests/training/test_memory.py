"""The estimate of a step's memory, and refusals that rest on it."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from spherelm import presets
from spherelm.cli import main
from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.optim.build import parts
from spherelm.training.build import build_model, build_optimizer
from spherelm.training.memory import LOGITS_CHUNK, SURE, check_fits, training_memory
from tests.processes import Spherelm
from tests.training.conftest import flags


@pytest.mark.parametrize(
    "fields",
    [
        {"model__d_model": 10**9},
        {"model__d_model": 10**14},
        {"model__vocab_size": 10**13},
        {"model__n_layers": 10**9},
        {"train__batch_size": 10**12},
        {"train__batch_size": 10**15, "train__micro_batch_size": 1},
    ],
)
def test_sizes_that_cannot_be_allocated(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, object]
) -> None:
    assert main(flags(tmp_path / "run", corpus, **fields)) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1, line
    assert "a step of this run needs at least" in line
    assert "are free on this machine" in line
    assert not (tmp_path / "run").exists()


def test_a_comparison_and_a_plan_are_refused_too(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "both"
    argv = ["compare", "--preset", "debug", "--out", str(out), "--data.path", str(corpus)]
    assert main([*argv, "--train.batch-size", str(10**12), "--train.device", "cpu"]) == 2
    assert "are free on this machine" in capsys.readouterr().err
    assert not out.exists()
    argv = flags(out, corpus, model__d_model=10**7)
    assert main([*argv, "--dry-run"]) == 2
    assert "are free on this machine" in capsys.readouterr().err


def test_a_plan_says_that_the_run_has_no_room_here(
    tmp_path: Path,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It may be meant for several devices; what is measured of it here is smaller."""
    monkeypatch.setattr("spherelm.training.report.plan.free_memory", lambda device: 3 << 20)
    for layers, fits in ((2, True), (400, False)):
        argv = flags(tmp_path / "run", corpus, model__n_layers=layers, train__batch_size=2)
        assert main([*argv, "--dry-run"]) == 0
        line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("memory"))
        assert ("but 3.0 MiB are free here" not in line) == fits, line


def little_memory() -> None:
    """What `ulimit -v` does: half a GiB more than is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (1 << 29)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_the_limit_of_a_process_counts(tmp_path: Path, corpus: Path) -> None:
    """A model of 50 M parameters needs 0.8 GiB, and is refused; a small one trains."""
    large = flags(tmp_path / "run", corpus, model__d_model=1024, model__n_layers=4)
    process = Spherelm(large, tmp_path / "log", before=little_memory)
    assert process.wait() == 2, process.output()
    assert "a step of this run needs at least 1" in process.output()
    assert "MiB are free on this machine" in process.output()
    assert not (tmp_path / "run").exists()
    small = flags(tmp_path / "run", corpus, train__steps=1)
    process = Spherelm(small, tmp_path / "log", before=little_memory)
    assert process.wait() == 0, process.output()


def test_every_process_of_a_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    run = presets.get("ngpt-nano")
    check_fits(run, torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000000")
    with pytest.raises(UserError, match="in each of 1000000 processes"):
        check_fits(run, torch.device("cpu"), 1_000_000)


def test_what_is_certain_lies_between_the_state_and_the_estimate() -> None:
    estimate = training_memory(presets.get("ngpt-0.5b-4k"))
    assert estimate.state == 4 * estimate.weights
    assert estimate.state < estimate.certain < estimate.total
    assert estimate.certain - estimate.state == int(SURE * (estimate.total - estimate.state))


@pytest.mark.parametrize(
    ("algorithm", "storage"),
    [("adamw", "fp32"), ("adamw", "bf16"), ("gated_adamw", "fp32"), ("muon", "fp32")],
)
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_the_optimizer_remembers_as_much_as_is_counted(
    arch: str, algorithm: str, storage: str
) -> None:
    """To the byte, after a real step; Adam's counts of steps, a number a tensor, are no moments."""
    fields = {"optim.algorithm": algorithm, "train.weight_storage": storage}
    run = override(presets.get(f"{arch}-debug"), fields)
    model = build_model(run, torch.device("cpu"))
    optimizer = build_optimizer(run, model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    states = [state for part in parts(optimizer) for state in part.state.values()]
    held = [tensor for state in states for tensor in state.values() if tensor.ndim]
    counted = training_memory(run)
    assert sum(tensor.nbytes for tensor in held) == counted.optimizer
    assert sum(parameter.nbytes for parameter in model.parameters()) == counted.weights


def test_gradients_are_held_in_shards_however_many_micro_batches_there_are() -> None:
    run = presets.get("ngpt-7b-4k")
    many = override(run, {"train.micro_batch_size": 1})
    assert training_memory(many, 8).gradients == training_memory(run, 8).gradients
    assert training_memory(run, 8).gradients < training_memory(run, 1).gradients / 7.9


def test_a_run_for_several_devices_is_counted_for_the_fewest_it_takes() -> None:
    """As by a plan, or `spherelm info`, on one: two that share a batch have the batch once."""
    run = presets.get("ngpt-0.5b-1k")
    divided = override(run, {"parallel.tensor": 2, "parallel.replicate": 3})
    assert training_memory(divided) == training_memory(divided, 6)
    tensor = training_memory(override(run, {"parallel.tensor": 2}))
    assert tensor.batch == training_memory(run).batch
    assert tensor.activations < training_memory(run).activations


@pytest.mark.parametrize(
    ("vocab_size", "rows"), [(257, 8192), (50257, 2**28 // 50257), (2**29, 1)], ids=str
)
def test_the_logits_of_a_fused_loss_are_whole_rows(vocab_size: int, rows: int) -> None:
    """What the kernel allocates: of a small vocabulary all, of a large one a row at least."""
    fields = {"model.vocab_size": vocab_size, "train.batch_size": 8, "train.device": "cuda:1"}
    run = override(presets.get("ngpt-0.5b-1k"), fields)
    tokens, d = 8 * run.model.context, run.model.d_model
    rest = 2 * 2 * tokens * d + 4 * vocab_size * d
    assert training_memory(run).loss - rest == 2 * rows * vocab_size


def test_the_kernel_takes_as_many_logits_at_a_time() -> None:
    kernel = pytest.importorskip("spherelm.ops.triton.cross_entropy")
    assert kernel._CHUNK_LOGITS == LOGITS_CHUNK
