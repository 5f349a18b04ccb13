"""What one step does: which rate, which norm, what is written down."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from spherelm import Transformer
from spherelm.config import ParallelConfig, RunConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import evaluation_batches
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.eval.loss import evaluate
from spherelm.model.flops import count_parameters, flops_per_token
from spherelm.model.sphere import store_matrices_
from spherelm.ops.device import prepare_torch
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model
from spherelm.training import loop
from spherelm.training.build import build_optimizer
from spherelm.training.failures import Diverged, diverged
from spherelm.training.loop import train
from spherelm.training.memory import training_memory
from spherelm.training.parallel.gradients import clipping_factor, squared_norm
from spherelm.training.report import plan as planning
from spherelm.training.report.plan import make_plan
from spherelm.training.report.recorder import RunningMean, StepFile, Stopwatch, sphere_metrics
from tests.model.tiny import perturbed, tiny_config
from tests.training.conftest import tiny


def tensors(out: Path, step: int) -> dict[str, torch.Tensor]:
    (shard,) = (out / "checkpoints" / f"step_{step}").glob("*.safetensors")
    return load_file(shard)


def test_the_rate_of_the_schedule_is_that_of_factors_too(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    """Adam's first step moves every number by the rate: here a quarter of the highest."""
    fields = {"train.steps": 4, "optim.warmup_steps": 3, "train.checkpoint_every": 1}
    train(override(tiny_run, {**fields, "train.keep_last": 4}), dataset, tmp_path)
    after = tensors(tmp_path, 1)
    torch.manual_seed(tiny_run.train.seed)
    before = {
        f"model.{name}": p.detach() for name, p in Transformer(tiny_run.model).state_dict().items()
    }
    factors = [name for name, start in before.items() if start.ndim == 1]
    assert factors
    for name in factors:
        moved = (after[name] - before[name]).abs()
        # All but those with hardly a gradient, against Adam's epsilon; float32 at about 1.
        assert float(moved.median()) == pytest.approx(0.25e-2, rel=1e-3), name
        assert float(moved.max()) < 0.26e-2


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_norm_is_that_of_all_gradients(arch: str, dtype: torch.dtype) -> None:
    model = Transformer(tiny_config(arch=arch))
    store_matrices_(model, dtype)
    for p in model.parameters():
        p.grad = torch.full_like(p, 2.0 if p.ndim == 2 else 3.0)
    expected = sum((4.0 if p.ndim == 2 else 9.0) * p.numel() for p in model.parameters())
    gradients = [p.grad for p in model.parameters()]
    share = squared_norm(gradients, Processes(ParallelConfig(), "cpu"))
    assert float(share) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("signed", [False, True])
def test_alpha_is_logged_as_the_update_uses_it(signed: bool) -> None:
    model = perturbed(tiny_config(signed_alpha=signed))
    for block in model.blocks:
        for scale in (block.alpha_attn, block.alpha_mlp):
            scale.stored.data[:3] = -scale.stored.data[:3].abs()
    logged = sphere_metrics(model)
    for i, block in enumerate(model.blocks):
        for name, alpha in (("alpha_attn", block.alpha_attn()), ("alpha_mlp", block.alpha_mlp())):
            used = alpha if signed else alpha.abs()
            assert logged[name][i] == pytest.approx(float(used.detach().mean()), abs=1e-6)
        for name, owner in (("s_qk", block.attention), ("s_u", block.mlp), ("s_nu", block.mlp)):
            factors = getattr(owner, name)().detach()
            assert logged[name][i] == pytest.approx(float(factors.mean()), abs=1e-6)
    assert model.s_z is not None
    assert logged["s_z"] == pytest.approx(float(model.s_z().detach().mean()), abs=1e-6)
    model.E_input.data[3] *= 1.25
    assert sphere_metrics(model)["largest_norm_deviation"] == pytest.approx(0.25, rel=1e-6)
    assert sphere_metrics(Transformer(tiny_config(arch="gpt"))) == {}
    several = sphere_metrics(model, lambda mine: [mine, 0.5, 0.1])
    assert several["largest_norm_deviation"] == 0.5


@pytest.mark.parametrize(("norm", "factor"), [(0.5, 1.0), (1.0, 1.0), (2.0, 0.5), (1e6, 1e-6)])
def test_only_what_is_too_long_is_clipped(norm: float, factor: float) -> None:
    # A millionth is added to the norm, against division by zero.
    assert float(clipping_factor(torch.tensor(norm), 1.0)) == pytest.approx(factor, rel=2e-6)
    assert float(clipping_factor(torch.tensor(0.0), 1.0)) == 1.0


def test_a_run_is_evaluated_in_the_precision_it_is_trained_in(
    tmp_path: Path, dataset: TokenDataset
) -> None:
    result = train(override(tiny("ngpt"), {"train.precision": "bf16"}), dataset, tmp_path)
    model = load_model(tmp_path).model
    batches = list(evaluation_batches(dataset.val, context=32, n_sequences=8, batch_size=4))
    with torch.autocast("cpu", torch.bfloat16):
        low = evaluate(model, batches).loss
    assert result.val_loss == pytest.approx(low, rel=1e-9)
    assert evaluate(model, batches).loss != pytest.approx(low, rel=1e-6)


def test_lines_after_the_checkpoint_and_a_line_cut_short_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    whole = "".join(json.dumps({"step": step, "loss": 0.5}) + "\n" for step in (1, 2, 3))
    file.write_text(whole + '{"step": 4, "lo')
    assert [line["step"] for line in read_metrics(file)] == [1, 2, 3]
    lines = StepFile(file, first=1, last=2)
    lines.write({"step": 3, "loss": 0.25})
    lines.close()
    assert [line["loss"] for line in read_metrics(file)] == [0.5, 0.5, 0.25]
    assert read_metrics(tmp_path / "missing.jsonl") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_with_the_name_of_the_file_also_at_its_end(tmp_path: Path) -> None:
    """What could not be written is still to be written when the file is closed."""
    file = tmp_path / "metrics.jsonl"
    lines = StepFile(file, first=1, last=0)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), lines._file.fileno())
    with pytest.raises(UserError, match=f"cannot write {re.escape(str(file))}: No space left"):
        lines.write({"step": 1})
    with pytest.raises(UserError, match=f"cannot write {re.escape(str(file))}: No space left"):
        lines.close()


def test_the_optimizer_is_what_the_configuration_says() -> None:
    fields = {"beta1": 0.8, "beta2": 0.9, "eps": 1e-5, "lr": 0.3, "weight_decay": 0.07}
    run = override(tiny("gpt"), {f"optim.{name}": value for name, value in fields.items()})
    matrices, factors = build_optimizer(run, Transformer(run.model)).param_groups
    for group, decay in ((matrices, 0.07), (factors, 0.0)):
        assert group["betas"] == (0.8, 0.9)
        assert (group["lr"], group["eps"], group["weight_decay"]) == (0.3, 1e-5, decay)


def test_a_gradient_that_is_not_finite_stops_the_run(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loss still is: the error names what went wrong, and at which step."""
    norms = iter([1.0, 1.0, math.inf, 1.0])
    monkeypatch.setattr(loop, "squared_norm", lambda *_: torch.tensor(next(norms)))
    with pytest.raises(Diverged, match="the norm of the gradient became inf at step 3"):
        train(override(tiny("ngpt"), {"train.steps": 4}), dataset, tmp_path)
    assert [line["step"] for line in read_metrics(RunDir(tmp_path).metrics)] == [1, 2]


def test_which_of_the_two_diverged() -> None:
    alone = (Transformer(tiny_config()), Processes(ParallelConfig(), "cpu"))
    assert "the loss became nan" in str(diverged(*alone, 3, math.nan, 1.0, None))
    assert "the loss became inf" in str(diverged(*alone, 3, math.inf, math.nan, None))
    assert "the norm of the gradient became nan" in str(diverged(*alone, 3, 1.0, math.nan, None))


def test_seconds_of_a_step_leave_out_what_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Stopwatch()
    now[0] += 3
    with clock.paused():
        now[0] += 50
    now[0] += 4
    assert clock.lap() == 7
    now[0] += 2
    assert clock.lap() == 2
    assert clock.lap() > 0  # a speed can be had from it


def test_a_speed_is_made_smooth() -> None:
    mean = RunningMean()
    assert [mean.update(value) for value in (10.0, 20.0, 0.0)] == pytest.approx([10.0, 11.0, 9.9])


def test_memory_is_counted_by_what_a_step_holds() -> None:
    run = override(tiny("ngpt"), {"train.batch_size": 8})
    whole, parts = (training_memory(r) for r in (run, override(run, {"train.micro_batch_size": 2})))
    assert whole.weights == whole.gradients == whole.optimizer / 2
    assert whole.activations == 4 * parts.activations
    assert whole.weights == parts.weights == 4 * count_parameters(run.model).total
    names = ("weights", "gradients", "optimizer", "working_copy", "activations", "loss", "batch")
    assert whole.total == sum(getattr(whole, name) for name in names)


def test_a_plan_counts_tokens_epochs_and_time(dataset: TokenDataset) -> None:
    run = tiny("gpt")  # 12 steps of 4 sequences of 32 tokens
    plan = make_plan(run, dataset)
    blocks = sum((len(shard.tokens) - 1) // 32 for shard in dataset.train.shards)
    assert plan["tokens"] == 12 * 4 * 32
    assert plan["epochs"] == pytest.approx(12 * 4 / blocks)
    assert plan["flops"] == plan["flops_per_token"] * plan["tokens"]
    assert plan["expected_seconds"] == pytest.approx(plan["tokens"] / plan["tokens_per_second"])


@pytest.mark.parametrize(("machine", "sequences", "context"), [(1e15, 4, 256), (1e6, 1, 64)])
def test_a_plan_of_what_is_slow_measures_less_of_it(
    dataset: TokenDataset,
    monkeypatch: pytest.MonkeyPatch,
    machine: float,
    sequences: int,
    context: int,
) -> None:
    """As of 7B parameters on a CPU. A machine of one speed has the same, however much is seen."""
    run = override(tiny("ngpt"), {"model.context": 256, "train.batch_size": 8})
    seen: list[tuple[int, ...]] = []
    loss = Transformer.loss

    def note(model: Transformer, tokens: Tensor, *given: Any) -> Tensor:
        seen.append(tuple(tokens.shape))
        return loss(model, tokens, *given)

    def one_pass(act: Callable[[], object], device: torch.device) -> float:
        act()
        rows, length = seen[-1]
        layers = len(seen)  # one, then two
        shape = dataclasses.replace(run.model, n_layers=layers, context=length)
        return rows * length * flops_per_token(shape) / 1e9

    monkeypatch.setattr(planning, "product_speed", lambda device: machine)
    monkeypatch.setattr(planning, "_fastest", one_pass)
    monkeypatch.setattr(Transformer, "loss", note)
    said: list[str] = []
    plan = make_plan(run, dataset, said.append)
    assert seen == [(sequences, context)] * 2
    assert plan["tokens_per_second"] == pytest.approx(1e9 / flops_per_token(run.model))
    assert said == ["measuring 64 of 256 tokens on cpu, since all would take long"][: context < 256]


def test_a_pass_that_takes_long_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def passes(seconds: list[float], device: str = "cpu") -> tuple[float, int]:
        left = list(seconds)

        def act() -> None:
            clock[0] += left.pop(0)

        return planning._fastest(act, torch.device(device)), len(seconds) - len(left)

    assert passes([0.3, 0.1, 0.2, 0.01]) == (pytest.approx(0.1), 3)
    assert passes([0.7, 0.6, 0.1]) == (pytest.approx(0.6), 2)
    assert passes([1.2, 1.0]) == (pytest.approx(1.2), 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert passes([40.0, 0.3, 0.1, 0.2, 0.01], "cuda") == (pytest.approx(0.1), 4)


def test_deterministic_products_are_no_tf32() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        prepare_torch(0, deterministic=False)
        assert torch.backends.cuda.matmul.allow_tf32
        prepare_torch(0, deterministic=True)
        assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        prepare_torch(0, deterministic=False)
        torch.backends.cuda.matmul.allow_tf32 = before
