"""What a model costs, against the paper's table of parameters and figures worked out by hand."""

from __future__ import annotations

import math

import pytest

from spherelm import presets
from spherelm.model.config import ScaleConfig
from spherelm.model.flops import count_parameters, flops_per_token
from tests.model.tiny import perturbed, tiny_config


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gpt-0.5b-1k", 468.2),
        ("gpt-1b-1k", 1025.7),
        ("ngpt-0.5b-1k", 468.4),
        ("ngpt-1b-1k", 1026.1),
    ],
)
def test_parameters_are_the_paper_s(name: str, millions: float) -> None:
    """The paper cuts off after one decimal, it does not round."""
    total = count_parameters(presets.get(name).model).total
    assert math.floor(total / 1e5) / 10 == millions


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_count_is_what_a_model_has(arch: str) -> None:
    config = tiny_config(arch=arch, n_kv_heads=2)
    count = count_parameters(config)
    assert count.total == sum(p.numel() for p in perturbed(config).parameters())
    D, F, V, L, G = 16, 10, 13, 2, 8  # G: two heads of k and v, of dimension 4
    assert count.embeddings == 2 * V * D
    assert count.attention == L * (2 * D + 2 * G) * D
    assert count.mlp == L * 3 * F * D
    gains, scales = L * 2 * D + D, L * (2 * D + G + 2 * F) + V
    assert count.factors == (gains if arch == "gpt" else scales)


def test_factors_that_are_one_number_or_fixed_count_as_such() -> None:
    config = tiny_config(
        alpha_attn=ScaleConfig(mode="scalar"),
        s_u=ScaleConfig(mode="fixed"),
        s_z=ScaleConfig(mode="scalar"),
    )
    parameters = perturbed(config).parameters()
    assert count_parameters(config).factors == sum(p.numel() for p in parameters if p.ndim != 2)


def test_tied_embeddings_count_once_and_multiply_once() -> None:
    tied, free = tiny_config(tie_embeddings=True), tiny_config()
    assert count_parameters(free).embeddings == 2 * count_parameters(tied).embeddings
    assert flops_per_token(tied) == flops_per_token(free)


@pytest.mark.parametrize(("context", "attention"), [(1024, 0.15e9), (4096, 0.60e9), (8192, 1.21e9)])
def test_flops_of_the_half_billion_model(context: int, attention: float) -> None:
    """2.613 G for the matrices, forward and backward, and 6·T·d·L for attention."""
    config = presets.get("ngpt-0.5b-1k").model
    matrices = 2.613e9
    assert flops_per_token(config, context) == pytest.approx(matrices + attention, rel=3e-3)
    assert flops_per_token(config, 2048) - flops_per_token(config, 1024) == 6 * 1024 * 1024 * 24


def test_flops_use_the_context_of_the_config() -> None:
    config = tiny_config()
    assert flops_per_token(config) == flops_per_token(config, config.context)
