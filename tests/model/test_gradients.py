"""Gradients against finite differences, and what compilation may not change."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from spherelm import Transformer
from spherelm.model.transformer import IGNORE_INDEX
from tests.model.tiny import perturbed, random_tokens, tiny_config

CASES = {
    "gpt": {"arch": "gpt"},
    "lerp": {},
    "slerp": {"update": "slerp"},
    "riemannian": {"update": "riemannian"},
    "no qk norm, signed alpha": {"qk_norm": False, "signed_alpha": True},
    "normalized in forward, tied, grouped": {
        "normalize_in_forward": True,
        "tie_embeddings": True,
        "n_kv_heads": 1,
    },
}


class Loss(torch.nn.Module):
    """`Transformer.loss` as a forward pass, which `functional_call` can give other parameters."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(tokens, targets)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(case: str) -> None:
    """Of the loss by every parameter of a whole model, at gradcheck's own tolerances."""
    sizes = {"vocab_size": 4, "d_model": 4, "n_heads": 2, "d_mlp": 3, "context": 3, "n_layers": 2}
    config = tiny_config(**sizes, **CASES[case])
    loss = Loss(perturbed(config))
    tokens = torch.tensor([[0, 3, 1], [2, 2, 0]])
    targets = torch.tensor([[3, 1, IGNORE_INDEX], [2, 0, 1]])
    names = [name for name, _ in loss.named_parameters()]

    def of_parameters(*values: Tensor) -> Tensor:
        return functional_call(loss, dict(zip(names, values, strict=True)), (tokens, targets))

    inputs = tuple(p.detach().clone().requires_grad_() for p in loss.parameters())
    assert torch.autograd.gradcheck(of_parameters, inputs)


@pytest.mark.skipif(shutil.which("g++") is None, reason="to compile for a CPU takes g++")
@pytest.mark.parametrize("arch", ["ngpt", pytest.param("gpt", marks=pytest.mark.slow)])
def test_compiled_gradients_are_the_eager_ones(arch: str) -> None:
    """Blocks compiled one by one, as training does it.

    Inductor reorders float32 sums of some ten terms: a few times 2^-24 of the largest gradient.
    """
    config = tiny_config(arch=arch, n_layers=1)
    model = perturbed(config).float()
    compiled = copy.deepcopy(model)
    for block in compiled.blocks:
        block.compile()
    tokens, targets = random_tokens(config), random_tokens(config)
    for each in (model, compiled):
        each.loss(tokens, targets).backward()
    for (name, p), q in zip(model.named_parameters(), compiled.parameters(), strict=True):
        difference = (p.grad - q.grad).abs().max()
        assert difference <= 1e-5 * p.grad.abs().max(), name


@pytest.mark.parametrize("arch", ["ngpt", "gpt"])
def test_a_model_compiled_for_any_length(arch: str) -> None:
    """The whole model, as a user would: dynamic=True makes an input of every number it can."""
    config = tiny_config(arch=arch, n_layers=1)
    model = perturbed(config)
    compiled = torch.compile(model, dynamic=True, backend="aot_eager")
    for length in (5, 7):
        tokens = random_tokens(config)[:, :length]
        torch.testing.assert_close(compiled(tokens), model(tokens))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="to compile for a CPU takes g++")
def test_compiled_norms_stay_in_float32() -> None:
    """Compiled bfloat16 may not be further from float32 than eager bfloat16 is.

    A length rounded to bfloat16 is off by up to 2^-8; the rounding of 256 coordinates averages out
    to 2^-8 / sqrt(256), six sigma 1.5e-3.
    """
    config = tiny_config(d_model=256, context=32)
    model, tokens = perturbed(config).float(), random_tokens(config, batch=8)
    compiled = copy.deepcopy(model)
    for block in compiled.blocks:
        block.compile()
    with torch.no_grad():
        exact = model.hidden(tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            eager, fused = model.hidden(tokens).float(), compiled.hidden(tokens).float()
    assert (fused.norm(dim=-1) - 1).abs().max() < 1.5e-3
    # The two round in different places, hence a tenth more.
    assert (fused - exact).square().mean() < 1.1 * (eager - exact).square().mean()
