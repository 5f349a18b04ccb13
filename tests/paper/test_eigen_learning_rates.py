"""Appendix 'Eigen learning rates': their signs, and what a sign can be traded for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spherelm import Transformer
from spherelm.ops import reference as kernels
from tests.model.tiny import UPDATES, perturbed, random_tokens, tiny_config

FLIPPED = [1, 4, 11]


@torch.no_grad()
def flip_rates(model: Transformer) -> None:
    """α_A,i → −α_A,i and the same for α_M, for some coordinates i of all layers."""
    for block in model.blocks:
        for alpha in (block.alpha_attn, block.alpha_mlp):
            alpha.stored[FLIPPED] *= -1


@torch.no_grad()
def flip_outputs(model: Transformer) -> None:
    """The same coordinates of W_o and W_oMLP, which are rows of the appendix's transposed W_o."""
    for block in model.blocks:
        for W in (block.attention.W_o, block.mlp.W_o_mlp):
            W[:, FLIPPED] *= -1


@pytest.mark.parametrize("update", UPDATES)
def test_absolute_rates_ignore_their_sign(update: str) -> None:
    config = tiny_config(update=update)
    model, tokens = perturbed(config), random_tokens(config)
    before = model(tokens)
    flip_rates(model)
    assert torch.equal(model(tokens), before)


@pytest.mark.parametrize("update", UPDATES)
def test_signed_rates_do_not(update: str) -> None:
    config = tiny_config(update=update, signed_alpha=True)
    model, tokens = perturbed(config), random_tokens(config)
    before = model(tokens)
    flip_rates(model)
    assert (model(tokens) - before).abs().max() > 1e-3


def contributions(model: Transformer, h: Tensor) -> tuple[Tensor, Tensor]:
    """α_A h_A and α_M h_M of the first layer, at the hidden state h."""
    block = model.blocks[0]
    alpha_A, alpha_M = block.eigen_learning_rates()
    h_A = kernels.normalize(block.attention(h, model.rope(h.shape[1])))
    return alpha_A * h_A, alpha_M * kernels.normalize(block.mlp(h))


def test_signs_of_rates_and_outputs_cancel() -> None:
    """α'_A W'_o = α_A W_o: what a block adds to h is the same, to the bit, if both signs flip."""
    model = perturbed(tiny_config(signed_alpha=True))
    h = kernels.normalize(torch.randn(2, 5, 16, dtype=torch.float64))
    before = contributions(model, h)
    flip_rates(model)
    flipped = contributions(model, h)
    flip_outputs(model)
    both = contributions(model, h)
    for a, b, c in zip(before, flipped, both, strict=True):
        assert not torch.equal(a, b)
        assert torch.equal(a, c)


def test_what_is_left_of_a_flipped_sign_is_the_pull_back_to_the_origin() -> None:
    """The appendix calls the whole update the same. It is, but for the −α h of h + α (h_A − h).

    That term shrinks a coordinate where α > 0 and stretches it where α < 0, whatever W_o does: with
    both signs flipped the update is Norm(h + α h_A + α h) in those coordinates.
    """
    torch.manual_seed(0)
    h, h_A = kernels.normalize(torch.randn(2, 1, 5, 16, dtype=torch.float64))
    alpha = torch.rand(16, dtype=torch.float64)
    sign = torch.ones(16, dtype=torch.float64)
    sign[FLIPPED] = -1
    flipped = kernels.residual_lerp(h, sign * h_A, sign * alpha)
    expected = kernels.normalize(h + alpha * h_A - sign * alpha * h)
    assert torch.allclose(flipped, expected, atol=1e-15)


def test_a_scalar_on_u_acts_on_nothing() -> None:
    """'The output of the MLP block is invariant to rescaling of u by a scalar.'"""
    config = tiny_config()
    model, tokens = perturbed(config), random_tokens(config)
    before = model(tokens)
    with torch.no_grad():
        for block in model.blocks:
            block.mlp.s_u.stored *= 3.0
    assert torch.allclose(model(tokens), before, atol=1e-14)


@pytest.mark.parametrize("matrix", ["attention.W_o", "mlp.W_o_mlp"])
def test_the_update_is_blind_to_the_size_of_an_output_matrix(matrix: str) -> None:
    """'The update of nGPT is invariant to any rescaling of the output projection matrix.'"""
    config = tiny_config()
    model, tokens = perturbed(config), random_tokens(config)
    before = model(tokens)
    with torch.no_grad():
        model.blocks[1].get_parameter(matrix).mul_(7.0)
    assert torch.allclose(model(tokens), before, atol=1e-14)
