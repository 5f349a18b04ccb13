"""A run: what it leaves behind, and that the ways to run it agree."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.console import format_count
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import evaluation_batches
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.folders import swap
from spherelm.model.flops import count_parameters
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model
from spherelm.training.build import build_state
from spherelm.training.loop import train
from spherelm.training.report.reporter import Lines
from tests.training.conftest import tiny


def losses(out: Path) -> torch.Tensor:
    return torch.tensor([line["loss"] for line in read_metrics(RunDir(out).metrics)])


def test_a_run_leaves_everything_needed_to_repeat_it(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    tiny_run = override(tiny_run, {"train.tensorboard": True})
    result = train(tiny_run, dataset, tmp_path / "run")
    run_dir = RunDir(tmp_path / "run")
    assert run_dir.read_config() == tiny_run
    assert {"torch", "python", "command"} <= json.loads(run_dir.env.read_text()).keys()
    assert list(run_dir.tensorboard.glob("events*"))
    assert load_tokenizer(run_dir.tokenizer).fingerprint == dataset.tokenizer().fingerprint
    lines = read_metrics(run_dir.metrics)
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert all({"step", "tokens", "loss", "lr", "grad_norm"} <= line.keys() for line in lines)
    assert [line["tokens"] for line in lines] == [128 * step for step in range(1, 13)]
    assert [line["step"] for line in lines if "val_loss" in line] == [4, 8, 12]
    assert lines[-1]["val_loss"] == result.val_loss
    # A token of this corpus is a byte, or the end of a document: of those in the 8 sequences.
    batches = evaluation_batches(dataset.val, context=32, n_sequences=8, batch_size=8)
    targets = torch.cat([batch.targets.flatten() for batch in batches])
    text_bytes = int((targets < 256).sum())
    assert text_bytes < targets.numel() == 256
    expected_bits = result.val_loss * 256 / math.log(2) / text_bytes  # type: ignore[operator]
    assert lines[-1]["val_bits_per_byte"] == pytest.approx(expected_bits, rel=1e-12)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert result.finished
    assert result.checkpoint == run_dir.checkpoints / "step_12"
    assert len(run_dir.speed.read_text().splitlines()) == 12


def test_a_run_begins_by_saying_what_it_trains_and_where(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU that was not found would else be noticed by the time alone."""
    train(tiny_run, dataset, tmp_path / "mine", reporter=Lines(100))
    parameters = format_count(count_parameters(tiny_run.model).total)
    first = capsys.readouterr().err.splitlines()[0]
    assert first == f"mine: {parameters} parameters on cpu, steps 0 to 12"


def test_ngpt_logs_its_factors_and_stays_on_the_sphere(
    tmp_path: Path, dataset: TokenDataset
) -> None:
    train(tiny("ngpt"), dataset, tmp_path)
    evaluated = [line for line in read_metrics(RunDir(tmp_path).metrics) if "val_loss" in line]
    for line in evaluated:
        for name in ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu"):
            assert len(line[name]) == 2
        # A row of 16 float32 numbers can be off by a few units in the last place.
        assert 0 < line["largest_norm_deviation"] < 1e-6
    assert evaluated[0]["alpha_attn"] != evaluated[-1]["alpha_attn"]


def test_the_seed_decides_the_weights_and_the_order_of_the_data(dataset: TokenDataset) -> None:
    def begin(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        run = override(tiny("gpt"), {"train.seed": seed})
        state = build_state(run, dataset, Processes(run.parallel, "cpu"))
        with contextlib.closing(state.loader):
            return state.model.E_input.detach(), next(state.loader).tokens

    for same, other, again in zip(begin(3), begin(4), begin(3), strict=True):
        assert torch.equal(same, again)
        assert not torch.equal(same, other)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(override(tiny_run, {"train.seed": seed}), dataset, tmp_path / name)
    first, second, other = ((tmp_path / n / "metrics.jsonl").read_bytes() for n in "abc")
    assert first == second
    assert first != other


@pytest.mark.parametrize(
    "change",
    [
        {"train.micro_batch_size": 1},
        {"train.micro_batch_size": 3},
        {"train.activation_checkpointing": True},
    ],
    ids=["micro-batches of 1", "of 3 and 1", "activation checkpointing"],
)
def test_other_ways_to_run_a_step_give_the_same_losses(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig, change: dict[str, object]
) -> None:
    train(tiny_run, dataset, tmp_path / "plain")
    train(override(tiny_run, change), dataset, tmp_path / "other")
    # Sums in another order: 12 steps amplify float32 rounding to some 1e-6.
    torch.testing.assert_close(
        losses(tmp_path / "plain"), losses(tmp_path / "other"), rtol=0, atol=2e-5
    )


@pytest.mark.slow
def test_compiled_blocks_give_the_same_losses(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    train(tiny_run, dataset, tmp_path / "plain")
    train(override(tiny_run, {"train.compile": True}), dataset, tmp_path / "compiled")
    torch.testing.assert_close(
        losses(tmp_path / "plain"), losses(tmp_path / "compiled"), rtol=0, atol=2e-5
    )


def test_weights_stored_in_bf16_are_trained_and_saved_so(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    run = override(tiny_run, {"train.weight_storage": "bf16", "train.precision": "bf16"})
    result = train(run, dataset, tmp_path)
    assert losses(tmp_path)[-1] < losses(tmp_path)[0]
    assert result.checkpoint is not None
    (shard,) = result.checkpoint.glob("*.safetensors")
    with safe_open(shard, framework="pt") as file:
        assert file.get_tensor("model.E_input").dtype == torch.bfloat16
        factor = "blocks.0.alpha_attn.stored" if run.model.arch == "ngpt" else "final_norm.gain"
        assert file.get_tensor(f"model.{factor}").dtype == torch.float32


def test_bf16_products_follow_float32(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    train(tiny_run, dataset, tmp_path / "fp32")
    train(override(tiny_run, {"train.precision": "bf16"}), dataset, tmp_path / "bf16")
    difference = (losses(tmp_path / "fp32") - losses(tmp_path / "bf16")).abs().max()
    # bfloat16 has 8 bits: logits of size 1 are off by some 1e-2 at most.
    assert 0 < difference < 3e-2


def test_attention_within_documents_changes_the_loss(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    train(tiny_run, dataset, tmp_path / "across")
    train(override(tiny_run, {"data.within_documents": True}), dataset, tmp_path / "within")
    assert (losses(tmp_path / "across") != losses(tmp_path / "within")).any()


def test_documents_that_restart_are_learned_from_as_if_alone(
    tmp_path: Path, dataset: TokenDataset
) -> None:
    """The validation loss of a run is that of its documents one by one."""
    fields = {"data.within_documents": True, "train.steps": 3, "train.micro_batch_size": 3}
    run = override(tiny("ngpt"), {**fields, "data.restart_positions": True, "model.context": 600})
    result = train(run, dataset, tmp_path / "restarting")
    model = load_model(tmp_path / "restarting").model
    batches = evaluation_batches(
        dataset.val, context=600, n_sequences=8, batch_size=4, within_documents=True
    )
    total, count = 0.0, 0
    for batch in batches:
        assert batch.documents is not None
        for tokens, targets, documents in zip(*batch[:3], strict=True):
            for number in documents.unique():
                mine = documents == number
                alone = (tokens[mine][None], targets[mine][None])
                total += float(model.loss(*alone, reduction="sum").detach())
                count += int(mine.sum())
    assert count == 8 * 600
    assert max(map(int, documents)) >= 1
    assert result.val_loss == pytest.approx(total / count, rel=1e-6)
    train(override(run, {"data.restart_positions": False}), dataset, tmp_path / "going on")
    assert (losses(tmp_path / "restarting")[1:] != losses(tmp_path / "going on")[1:]).all()


def test_warmup_and_cosine_are_in_the_metrics(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    run = override(tiny_run, {"optim.warmup_steps": 3, "optim.lr": 1e-2, "optim.final_lr": 1e-3})
    train(run, dataset, tmp_path)
    rates = [line["lr"] for line in read_metrics(RunDir(tmp_path).metrics)]
    assert rates[:4] == pytest.approx([0.25e-2, 0.5e-2, 0.75e-2, 1e-2])
    assert all(after < before for before, after in itertools.pairwise(rates[3:]))
    assert rates[-1] > 1e-3


def test_clipping_holds_the_gradient(tmp_path: Path, dataset: TokenDataset) -> None:
    """Plain SGD would be proportional; Adam's first step is not, so look at its first moment."""
    norms = {}
    for clip in (0.0, 0.01):
        run = override(tiny("gpt"), {"optim.grad_clip": clip, "train.steps": 1})
        result = train(run, dataset, tmp_path / str(clip))
        assert result.checkpoint is not None
        (shard,) = result.checkpoint.glob("*.safetensors")
        with safe_open(shard, framework="pt") as file:
            moments = [file.get_tensor(k) for k in file.keys() if k.startswith("exp_avg.")]  # noqa: SIM118
        norms[clip] = math.sqrt(sum(float(m.square().sum()) for m in moments)) / (1 - 0.9)
    logged = read_metrics(RunDir(tmp_path / "0.01").metrics)[0]["grad_norm"]
    assert norms[0.0] == pytest.approx(logged, rel=1e-4)
    assert norms[0.01] == pytest.approx(0.01, rel=1e-3)


def test_a_vocabulary_smaller_than_the_datas_is_refused(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    small = dataclasses.replace(tiny_run, model=dataclasses.replace(tiny_run.model, vocab_size=100))
    with pytest.raises(UserError, match=r"vocabulary of 257.*model.vocab_size is 100"):
        train(small, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_has_the_validation_loss_of_its_own_step_or_none(
    tmp_path: Path, dataset: TokenDataset
) -> None:
    """Which checkpoint is the best must not depend on a loss measured before it."""
    fields = {"train.eval_every": 4, "train.checkpoint_every": 3, "train.keep_last": 9}
    train(override(tiny("ngpt"), fields), dataset, tmp_path)
    lines = {m["step"]: m for m in read_metrics(RunDir(tmp_path).metrics)}
    for step, expected in ((3, None), (6, None), (12, lines[12]["val_loss"])):
        state = json.loads((tmp_path / f"checkpoints/step_{step}/state.json").read_text())
        assert state["val_loss"] == expected


@pytest.mark.parametrize("background", [False, True])
def test_lines_are_forced_to_the_disk_before_a_checkpoint_counts_on_them(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """Where the power fails, no checkpoint is left whose lines of metrics are gone."""
    forced: dict[int, int] = {}
    """Bytes of each file that are on the disk, by its inode."""
    fsync, put, named = os.fsync, swap.put, list[str]()

    def note_size(file: int) -> None:
        forced[os.stat(file).st_ino] = os.stat(file).st_size
        fsync(file)

    def check_lines(new: Path, target: Path) -> None:
        if target.name.startswith("step_"):
            step = int(target.name.removeprefix("step_"))
            for name in ("metrics.jsonl", "speed.jsonl"):
                path = tmp_path / "run" / name
                lines = path.read_bytes().splitlines(keepends=True)[:step]
                assert len(lines) == step
                assert forced[path.stat().st_ino] >= sum(map(len, lines))
            named.append(target.name)
        put(new, target)

    monkeypatch.setattr(os, "fsync", note_size)
    monkeypatch.setattr(swap, "put", check_lines)
    run = override(tiny("gpt"), {"train.background_checkpoints": background})
    train(run, dataset, tmp_path / "run")
    assert named == ["step_4", "step_8", "step_12"]
