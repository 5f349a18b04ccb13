"""What the paper promises of vectors on the sphere: lengths of 1, dot products within bounds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from spherelm import ModelConfig, Transformer
from spherelm.model.rope import rope_table
from spherelm.ops import reference as kernels
from tests.model.tiny import UPDATES, perturbed, random_tokens, small_configs, tiny_config

ROUNDING = 1e-14
"""Some dozen roundings to 2^-53."""


def lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x.double(), dim=-1)


def hidden_states(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """h as it enters the first block and after each update: what enters and leaves the MLPs."""
    states: list[Tensor] = []

    def entering(module: nn.Module, args: tuple[Any, ...]) -> None:
        states.append(args[0].detach())

    def leaving(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        states.append(output.detach())

    for block in model.blocks:
        block.attention.register_forward_pre_hook(entering)
        block.mlp.register_forward_pre_hook(entering)
        block.register_forward_hook(leaving)
    model(tokens)
    assert len(states) == 3 * model.config.n_layers
    return states


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("signed_alpha", [False, True])
def test_hidden_state_has_unit_length_after_every_update(update: str, signed_alpha: bool) -> None:
    config = tiny_config(update=update, signed_alpha=signed_alpha)
    for h in hidden_states(perturbed(config), random_tokens(config)):
        assert (lengths(h) - 1).abs().max() < ROUNDING


@given(config=small_configs(arch="ngpt"), batch=st.integers(1, 5))
def test_hidden_state_has_unit_length_in_any_shape(config: ModelConfig, batch: int) -> None:
    for h in hidden_states(perturbed(config), random_tokens(config, batch)):
        assert (lengths(h) - 1).abs().max() < ROUNDING


@given(config=small_configs(arch="ngpt"), batch=st.integers(1, 5))
def test_hidden_state_has_unit_length_in_bfloat16(config: ModelConfig, batch: int) -> None:
    """Each coordinate is rounded by at most 2^-8 of itself, so the length is, too."""
    for h in hidden_states(perturbed(config).bfloat16(), random_tokens(config, batch)):
        assert h.dtype == torch.bfloat16
        assert (lengths(h) - 1).abs().max() < 2**-8


def test_lengths_are_computed_in_float32_even_in_bfloat16() -> None:
    """The rounding of 256 coordinates by 2^-8 averages out to 2^-8 / sqrt(256), six sigma 1.5e-3;
    a length that was itself rounded to bfloat16 would be off by up to 2^-8 = 4e-3 as a whole."""
    config = tiny_config(d_model=256, context=32)
    for update in UPDATES:
        model = perturbed(dataclasses.replace(config, update=update)).bfloat16()
        for h in hidden_states(model, random_tokens(config, batch=8)):
            assert (lengths(h) - 1).abs().max() < 1.5e-3


@given(config=small_configs(arch="ngpt"))
def test_logits_are_bounded_by_s_z(config: ModelConfig) -> None:
    model = perturbed(config)
    with torch.no_grad():
        excess = model(random_tokens(config)).abs() - model.s_z().abs()
    assert excess.max() < ROUNDING * model.s_z().abs().max()


@given(
    heads=st.integers(1, 3),
    group=st.integers(1, 3),
    half=st.integers(1, 4),
    length=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_query_key_products_are_bounded_by_s_qk(
    heads: int, group: int, half: int, length: int, seed: int
) -> None:
    """|q·k| ≤ max s_qk² in every head, however long q and k were before."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    K = 2 * half
    q, k = draw(2, length, heads * group, K) * 30, draw(2, length, heads, K) * 0.01
    s_qk = draw(heads * K)
    table = rope_table(length, K, 10000.0, dtype=torch.float64)
    q, k = kernels.qk_on_sphere(q, k, table, s_qk, qk_norm=True)
    k = k.repeat_interleave(group, dim=2)
    products = torch.einsum("bihk,bjhk->bhij", q, k).abs().amax(dim=(0, 2, 3))  # (H,)
    bound = s_qk.view(heads, K).square().amax(dim=1).repeat_interleave(group)
    assert (products <= bound * (1 + ROUNDING)).all()


def test_query_key_bound_is_reached() -> None:
    """A query that meets its own key along the largest factor: the bound is not a loose one."""
    x = torch.tensor([0.0, 5.0]).view(1, 1, 1, 2)
    s_qk = torch.tensor([1.0, 3.0])
    q, k = kernels.qk_on_sphere(x, x, rope_table(1, 2, 10000.0), s_qk, qk_norm=True)
    assert float((q * k).sum()) == pytest.approx(9.0)


@pytest.mark.parametrize("coordinate", [0, 5])
def test_no_coordinate_has_a_sign(coordinate: int) -> None:
    """Mirroring one axis of the space all vectors live in changes nothing, to the bit."""
    config = tiny_config(signed_alpha=True)
    model, tokens = perturbed(config), random_tokens(config)
    with torch.no_grad():
        before = model(tokens)
        for p in model.parameters():
            if p.ndim == 2:
                p[:, coordinate].neg_()
        assert torch.equal(model(tokens), before)
