"""What one step does: which rate, which norm, what is written down."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from spherelm import Transformer
from spherelm.config import ParallelConfig, RunConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import evaluation_batches
from spherelm.eval.loss import evaluate
from spherelm.exchange.load import load_model
from spherelm.train.gradients import clipping_factor, squared_norm
from spherelm.train.loop import train
from spherelm.train.metrics import sphere_metrics
from spherelm.train.processes import Processes
from tests.model.tiny import perturbed, tiny_config
from tests.train.conftest import tiny


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
def test_the_norm_is_that_of_all_gradients(arch: str) -> None:
    model = Transformer(tiny_config(arch=arch))
    for p in model.parameters():
        p.grad = torch.full_like(p, 2.0 if p.ndim == 2 else 3.0)
    expected = sum((4.0 if p.ndim == 2 else 9.0) * p.numel() for p in model.parameters())
    share = squared_norm(model, Processes(ParallelConfig(), "cpu"))
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
