"""The table at the top of `spherelm.model.init` is true."""

from __future__ import annotations

import math

import pytest
import torch

from spherelm import ModelConfig, Transformer
from spherelm.model import init
from spherelm.model.block import RMSNorm
from spherelm.model.scale import Scale
from spherelm.model.sphere import largest_norm_deviation, matrices
from tests.model.tiny import VARIANTS, tiny_config

CONFIG = {"vocab_size": 500, "d_model": 128, "n_layers": 3, "n_heads": 4, "d_mlp": 300}


def standard_deviations(model: Transformer) -> dict[str, float]:
    return {name: float(m.detach().square().mean().sqrt()) for name, m in matrices(model)}


def expected_deviation(name: str, std: float) -> float:
    """Output matrices start smaller by sqrt(2 · n_layers)."""
    return std / math.sqrt(2 * 3) if name.endswith(("W_o", "W_o_mlp")) else std


def assert_deviations(model: Transformer, std: float) -> None:
    """The smallest matrix has 16,384 elements: a standard error of 0.55 %, a seventh of 4 %."""
    for name, found in standard_deviations(model).items():
        assert found == pytest.approx(expected_deviation(name, std), rel=0.04), name
    for name, m in matrices(model):
        standard_error = expected_deviation(name, std) / math.sqrt(m.numel())
        assert abs(float(m.detach().mean())) < 6 * standard_error, name


@pytest.mark.parametrize(("init_std", "std"), [(None, 0.02), (0.09, 0.09)])
def test_gpt_matrices(init_std: float | None, std: float) -> None:
    assert_deviations(Transformer(ModelConfig(arch="gpt", init_std=init_std, **CONFIG)), std)


def test_ngpt_matrices_before_they_are_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "retract_", lambda model: None)
    assert_deviations(Transformer(ModelConfig(**CONFIG)), 1 / math.sqrt(128))


def test_ngpt_matrices() -> None:
    model = Transformer(ModelConfig(**CONFIG))
    assert largest_norm_deviation(model) < 1e-6
    for name, found in standard_deviations(model).items():
        assert found == pytest.approx(1 / math.sqrt(128), rel=1e-6), name


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_vectors_of_factors(arch: str) -> None:
    model = Transformer(tiny_config(arch=arch))
    found = {"gains": 0, "scales": 0}
    for module in model.modules():
        if isinstance(module, RMSNorm):
            assert torch.equal(module.gain, torch.ones(16))
            found["gains"] += 1
        if isinstance(module, Scale):
            assert torch.equal(module.stored, torch.full_like(module.stored, module.config.scale))
            found["scales"] += 1
    assert found == ({"gains": 5, "scales": 0} if arch == "gpt" else {"gains": 0, "scales": 11})


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_one_seed_one_model(arch: str) -> None:
    def build(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return Transformer(tiny_config(arch=arch)).state_dict()

    first, again, other = build(1), build(1), build(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["E_input"], other["E_input"])


@pytest.mark.parametrize("variant", ["gpt", "lerp", "tied", "scales: fixed", "scales: scalar"])
def test_a_model_filled_after_the_meta_device_is_the_same_model(variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    torch.manual_seed(7)
    direct = Transformer(config)
    with torch.device("meta"):
        model = Transformer(config)
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    model.to_empty(device="cpu")
    torch.manual_seed(7)
    model.reset_parameters()
    expected = dict(direct.named_parameters()) | dict(direct.named_buffers())
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name
