"""Rows of unit length: at the start, after loading, and never by accident."""

from __future__ import annotations

import pytest
import torch

from spherelm import ModelConfig, Transformer, retract_
from spherelm.errors import UserError
from spherelm.model.sphere import largest_norm_deviation, matrices, retract_strays_, row_norms
from tests.model.tiny import perturbed, tiny_config

# ‖x / ‖x‖‖ is 1 but for the rounding of the length and of each quotient.
FLOAT32_ROUNDING = 4 * torch.finfo(torch.float32).eps


def all_matrices(config: ModelConfig) -> set[str]:
    block = ("attention.W_q", "attention.W_k", "attention.W_v", "attention.W_o")
    block += ("mlp.W_u", "mlp.W_nu", "mlp.W_o_mlp")
    of_blocks = {f"blocks.{i}.{name}" for i in range(config.n_layers) for name in block}
    return of_blocks | {"E_input", "E_output"}


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_the_nine_kinds_of_matrix_have_vectors_of_the_model_as_rows(arch: str) -> None:
    config = tiny_config(arch=arch)
    found = dict(matrices(Transformer(config)))
    assert set(found) == all_matrices(config)
    assert {matrix.shape[1] for matrix in found.values()} == {config.d_model}


def test_rows_have_unit_length_at_the_start() -> None:
    assert largest_norm_deviation(Transformer(tiny_config())) < FLOAT32_ROUNDING


def test_a_gpt_has_no_vectors_that_could_deviate() -> None:
    assert largest_norm_deviation(Transformer(tiny_config(arch="gpt"))) == 0.0


def test_retraction_keeps_directions() -> None:
    model = perturbed(tiny_config())
    before = {name: m.detach().clone() for name, m in matrices(model)}
    with torch.no_grad():
        for _, m in matrices(model):
            m.mul_(torch.rand(m.shape[0], 1) + 0.5)
    assert largest_norm_deviation(model) > 0.1
    retract_(model)
    for name, m in matrices(model):
        assert torch.allclose(m, before[name], atol=1e-15)


def test_retraction_leaves_factors_alone() -> None:
    model = perturbed(tiny_config())
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.ndim == 1}
    retract_(model)
    assert before
    for name, value in before.items():
        assert torch.equal(model.get_parameter(name), value)


def test_retraction_leaves_a_gpt_alone() -> None:
    model = perturbed(tiny_config(arch="gpt"))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    retract_(model)
    retract_strays_(model)
    model.load_state_dict(model.state_dict())
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])


def test_loading_normalizes_what_comes_from_elsewhere() -> None:
    config = tiny_config()
    model = Transformer(config)
    strange = {
        name: value * 3 if value.ndim == 2 else value for name, value in model.state_dict().items()
    }
    other = Transformer(config)
    other.load_state_dict(strange)
    assert largest_norm_deviation(other) < FLOAT32_ROUNDING
    for (_, loaded), (_, original) in zip(matrices(other), matrices(model), strict=True):
        assert torch.allclose(loaded, original, atol=1e-7)


def test_loading_inside_another_module_normalizes_too() -> None:
    wrapped = torch.nn.ModuleDict({"model": Transformer(tiny_config())})
    wrapped.load_state_dict({name: value * 3 for name, value in wrapped.state_dict().items()})
    assert largest_norm_deviation(wrapped) < FLOAT32_ROUNDING


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_loading_a_normalized_model_is_exact(dtype: torch.dtype) -> None:
    """Rows of the paper's widths, whose lengths in float32 are rarely exactly 1."""
    config = ModelConfig(vocab_size=3000, d_model=1280, n_layers=1, n_heads=20, d_mlp=64)
    model = Transformer(config).to(dtype)
    retract_(model)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    assert float((row_norms(saved["E_input"]) - 1).abs().max()) > 0
    model.load_state_dict(saved)
    for name, value in model.state_dict().items():
        assert torch.equal(value, saved[name]), name


@pytest.mark.parametrize("factor", [1.5, 1 + 1e-5])  # far, and 80 times the rounding
def test_only_strays_are_touched(factor: float) -> None:
    model = Transformer(tiny_config())
    before = model.E_input.detach().clone()
    with torch.no_grad():
        model.E_input[3] *= factor
    retract_strays_(model)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    others = torch.arange(13) != 3
    assert torch.equal(model.E_input[others], before[others])
    assert torch.allclose(model.E_input[3], before[3], atol=1e-7)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_row_without_direction_is_refused(value: float) -> None:
    model = Transformer(tiny_config())
    state = model.state_dict()
    state["blocks.1.mlp.W_u"] = state["blocks.1.mlp.W_u"].clone()
    state["blocks.1.mlp.W_u"][2] = value
    with pytest.raises(UserError, match=r"blocks\.1\.mlp\.W_u") as refusal:
        model.load_state_dict(state)
    assert "\n" not in str(refusal.value)


def test_loading_without_values_is_possible() -> None:
    """A model on the meta device has no rows to look at; given some, it computes with them."""
    with torch.device("meta"):
        model = Transformer(tiny_config())
    model.load_state_dict(model.state_dict())
    filled = Transformer(tiny_config()).double()
    model.load_state_dict(filled.state_dict(), assign=True)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    tokens = torch.arange(12).view(2, 6)
    assert torch.equal(model(tokens), filled(tokens))
