"""Matrices stored in bfloat16: what that means in a step, and that every verb takes such a run."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from spherelm import AdamW, ModelConfig, Transformer
from spherelm.cli import main
from spherelm.config import RunConfig, TrainConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.generation.engine import Engine
from spherelm.model.config import Arch
from spherelm.model.sphere import as_read, largest_norm_deviation, matrices, store_matrices_
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model
from spherelm.training.loop import train
from spherelm.training.memory import training_memory
from tests.model.tiny import perturbed, random_tokens, tiny_config
from tests.training.conftest import flags, tiny
from tests.training.same_run import assert_same_run, stopped, tensors

BF16_STEP = 2**-8
"""The most that rounding to the nearest bfloat16 changes a number, as a share of it."""


def test_a_run_at_default_precision_resumes_to_the_bit(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    run = override(tiny_run, {"train.weight_storage": "bf16", "train.keep_last": 5})
    train(run, dataset, tmp_path / "whole")
    losses = [line["loss"] for line in read_metrics(RunDir(tmp_path / "whole").metrics)]
    assert losses[-1] < losses[0] - 0.2
    for name, tensor in tensors(tmp_path / "whole", 12).items():
        of_a_matrix = tensor.ndim == 2
        assert tensor.dtype == (torch.bfloat16 if of_a_matrix else torch.float32), name
    resumed = stopped(tmp_path / "whole")
    train(run, dataset, resumed, resume="auto")
    assert_same_run(tmp_path / "whole", resumed)


def test_every_verb_takes_such_a_run(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def out(*argv: str) -> dict[str, Any]:
        assert main([*argv, "--json"]) == 0
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return said

    run, export, back = (str(tmp_path / name) for name in ("run", "hf", "back"))
    trained = out(*flags(Path(run), corpus, train__weight_storage="bf16", train__steps=4))
    evaluated = out("eval", run, "--device", "cpu")
    (found,) = evaluated["results"]
    assert found["loss"] == pytest.approx(trained["val_loss"], rel=1e-6)
    generate = ("--prompt", "the ", "--temperature", "0", "--max-new-tokens", "8")
    written = out("generate", run, "--device", "cpu", *generate)
    out("export", run, "--out", export)
    out("import", export, "--out", back)
    ours, again = load_model(run).model.state_dict(), load_model(back).model.state_dict()
    assert ours["E_input"].dtype == torch.bfloat16
    assert all(torch.equal(ours[name], again[name]) for name in ours)
    assert out("generate", back, "--device", "cpu", *generate)["outputs"] == written["outputs"]
    out("export", run, "--out", export, "--fold", "--force")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"
    folded = load_file(tmp_path / "hf" / "model.safetensors")
    assert {t.dtype for n, t in folded.items() if "proj" in n} == {torch.bfloat16}
    both = str(tmp_path / "both")
    compared = out(
        *("compare", "--preset", "debug", "--out", both, "--data", str(corpus)),
        *("--train.weight-storage", "bf16", "--steps", "2", "--train.batch-size", "2"),
        *("--train.eval-sequences", "2", "--train.no-tensorboard", "--device", "cpu"),
    )
    assert compared
    for arch in ("gpt", "ngpt"):
        assert load_model(f"{both}/{arch}").model.E_input.dtype == torch.bfloat16


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_products_have_the_precision_that_was_asked_for(arch: Arch) -> None:
    """Stored in bfloat16 and read in float32 is exact: the same as a float32 model of these values,
    forward; the gradients are that model's, rounded to what is stored."""
    for fields in ({}, {"tie_embeddings": True}):
        model = perturbed(tiny_config(arch=arch, **fields)).float()
        store_matrices_(model, torch.bfloat16)
        wide = Transformer(model.config)
        with torch.no_grad():
            for mine, theirs in zip(wide.parameters(), model.parameters(), strict=True):
                mine.copy_(theirs)
        tokens = random_tokens(model.config)
        assert model.hidden(tokens).dtype == torch.float32
        assert torch.equal(model(tokens), wide(tokens))
        for each in (model, wide):
            each.loss(tokens, tokens.roll(-1, 1)).backward()
        for (name, p), q in zip(model.named_parameters(), wide.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            # Embeddings are read and multiplied by: two gradients, each rounded, where tied.
            exact = not (fields and name == "E_input")
            assert torch.allclose(p.grad.float(), q.grad, rtol=BF16_STEP, atol=0) or not exact, name
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model.hidden(tokens).dtype == torch.bfloat16
    assert Engine(model).model.dtype == torch.float32
    assert model.bfloat16().hidden(tokens).dtype == torch.bfloat16
    assert Engine(model).model.dtype == torch.bfloat16


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_step_computes_in_float32_and_rounds_once(arch: Arch) -> None:
    model = perturbed(tiny_config(arch=arch, d_model=64)).float()
    store_matrices_(model, torch.bfloat16)
    exact = copy.deepcopy(model).double()
    decay = 0.1 if arch == "gpt" else 0.0
    ours, theirs = (AdamW(m, lr=1e-2, weight_decay=decay) for m in (model, exact))
    for step in (1, 2):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        for (name, p), q in zip(model.named_parameters(), exact.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.double()
            with torch.no_grad():  # each step from the same numbers: what is rounded stays so
                q.copy_(before[name])
            for moment in ("exp_avg", "exp_avg_sq"):
                if step > 1:
                    theirs.state[q][moment].copy_(ours.state[p][moment])
        for optimizer in (ours, theirs):
            optimizer.scale_gradients(torch.tensor(0.3))
            optimizer.step()
        for (name, p), q in zip(model.named_parameters(), exact.parameters(), strict=True):
            narrow = p.dtype == torch.bfloat16
            assert narrow == (p.ndim == 2)
            tolerance = BF16_STEP if narrow else 1e-5
            for moment in ("exp_avg", "exp_avg_sq"):
                mine, wide = ours.state[p][moment], theirs.state[q][moment]
                assert mine.dtype == p.dtype
                assert torch.allclose(mine.double(), wide, rtol=tolerance, atol=1e-7), (
                    name,
                    moment,
                )
            assert torch.allclose(p.double(), q, rtol=tolerance, atol=1e-7), name
            assert not torch.equal(p, before[name])
    if arch == "ngpt":
        assert largest_norm_deviation(model) < BF16_STEP


def share_changed(model: Transformer, lr: float) -> float:
    """The share of the numbers in its bfloat16 matrices that the first step changes."""
    store_matrices_(model, torch.bfloat16)
    before = {name: matrix.detach().clone() for name, matrix in matrices(model)}
    optimizer = AdamW(model, lr=lr)
    tokens = random_tokens(model.config, batch=8, length=65)
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    changed = sum(int((matrix != before[name]).sum()) for name, matrix in matrices(model))
    return changed / sum(matrix.numel() for _, matrix in matrices(model))


def test_what_a_small_step_changes() -> None:
    """docs/precision.md: at a rate of 1e-5 nearly everything stays as it was, for nGPT and for a
    GPT whose weights are as large."""
    shape = {"vocab_size": 257, "d_model": 64, "n_layers": 2, "n_heads": 2, "context": 64}
    torch.manual_seed(0)
    gpt = Transformer(ModelConfig(arch="gpt", **shape))
    with torch.no_grad():  # the paper's standard deviation, whatever a preset says
        for name, matrix in matrices(gpt):
            matrix.normal_(0.0, 0.02 / (2 if "W_o" in name else 1))
    large = copy.deepcopy(gpt)
    with torch.no_grad():
        for _, matrix in matrices(large):
            matrix.mul_(1 / math.sqrt(64) / 0.02)
    assert share_changed(gpt, 1e-5) == pytest.approx(0.19, abs=0.01)
    assert share_changed(large, 1e-5) == pytest.approx(0.03, abs=0.005)
    ngpt = ModelConfig(arch="ngpt", **shape)
    assert share_changed(Transformer(ngpt), 1e-5) == pytest.approx(0.025, abs=0.005)
    assert share_changed(Transformer(ngpt), 1e-3) > 0.8


def test_rounding_is_followed_by_a_retraction() -> None:
    """A row that rounding shortens by nearly 2^-8: most of its numbers lie just below the middle
    between two of bfloat16's, so all of them are rounded down."""
    model = Transformer(tiny_config())
    row = torch.full((16,), 0.25 * (1 + 0.99 * 2**-8))
    row[-1] = (1 - row[:-1].square().sum()).sqrt()
    with torch.no_grad():
        model.E_input[3] = row
    rounded = float(torch.linalg.vector_norm(row.bfloat16().float()))
    store_matrices_(model, torch.bfloat16)
    stored = float(torch.linalg.vector_norm(model.E_input[3].detach().float()))
    assert abs(rounded - 1) > 3.5e-3
    assert abs(stored - 1) < abs(rounded - 1) - 1e-4


def test_rows_that_are_off_by_more_than_rounding_are_put_back() -> None:
    """What counts as on the sphere is what the dtype can say: 1e-3 is far off in float32, and
    rounding in bfloat16."""
    for dtype, is_put_back in ((torch.float32, True), (torch.bfloat16, False)):
        model = Transformer(tiny_config())
        store_matrices_(model, dtype)
        with torch.no_grad():
            model.E_input[3] *= 1 + 5e-4
            model.E_input[4] = 0.0
            model.E_input[4, :4] = torch.tensor([0.5, 0.5, 0.5, 0.5 * (1 + 2**-6)])  # ‖·‖ = 1.004
        state = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state)
        assert torch.equal(model.E_input[4], state["E_input"][4]) != is_put_back
        if is_put_back:
            assert abs(float(torch.linalg.vector_norm(model.E_input[3].detach())) - 1) < 1e-6


def test_as_read_never_narrows() -> None:
    wide = torch.ones(2, 2)
    assert as_read(wide, torch.bfloat16) is wide
    assert as_read(wide.bfloat16(), torch.float32).dtype == torch.float32
    long = torch.full((1, 4), 2.0).bfloat16()
    assert torch.equal(as_read(long, torch.float32, normalized=True), torch.full((1, 4), 0.5))


def test_memory_counts_what_is_stored() -> None:
    run = RunConfig(train=TrainConfig(device="cpu"))
    narrow = override(run, {"train.weight_storage": "bf16"})
    wide, half = training_memory(run), training_memory(narrow)
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(half, part) == pytest.approx(getattr(wide, part) / 2, rel=1e-2)
    assert wide.working_copy == 0
    assert half.working_copy == pytest.approx(wide.weights, rel=1e-2)  # float32, for the products
    assert training_memory(override(narrow, {"train.precision": "bf16"})).working_copy == 0


def test_gradients_are_clipped_in_float32(tmp_path: Path, dataset: TokenDataset) -> None:
    """Adam's first moment is a tenth of the clipped gradient."""
    fields = {"train.weight_storage": "bf16", "optim.grad_clip": 0.01, "train.steps": 1}
    train(override(tiny("ngpt"), fields), dataset, tmp_path)
    moments = [t.float() for n, t in tensors(tmp_path, 1).items() if n.startswith("exp_avg.")]
    norm = math.sqrt(sum(float(m.square().sum()) for m in moments)) / 0.1
    assert norm == pytest.approx(0.01, rel=3e-3)  # each number of it rounded
