"""'Effective learning rates in Adam': `scale` sets how fast a factor moves, `init` its start."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spherelm import AdamW, Transformer
from spherelm.model.config import SCALE_NAMES, ResolvedScale
from spherelm.model.scale import Scale
from tests.model.tiny import random_tokens, tiny_config


@given(
    init=st.floats(0.01, 100.0),
    scale=st.floats(0.01, 10.0),
    mode=st.sampled_from(["vector", "scalar"]),
    lr=st.floats(1e-4, 1e-2),
)
def test_first_step_of_adam_moves_a_factor_by_lr_init_over_scale(
    init: float, scale: float, mode: str, lr: float
) -> None:
    """Adam's first step is lr · g / (|g| + ε): the learning rate, whatever the gradient."""
    factors = Scale(5, ResolvedScale(init, scale, mode)).double()
    assert torch.allclose(factors(), torch.full((5,), init).double(), rtol=1e-6)  # float32 storage
    optimizer = torch.optim.Adam(factors.parameters(), lr=lr, eps=1e-12)
    before = factors().detach().clone()
    slopes = torch.tensor([3.0, 0.5, 7.0, 2.0, 0.1]).double()
    (factors() * slopes).sum().backward()
    optimizer.step()
    # ε moves the step by ε/|g| and the subtraction rounds relative to the factor itself.
    step = before - factors().detach()
    assert torch.allclose(step, torch.full_like(step, lr * init / scale), rtol=1e-6)


PAPER = {  # point 3 to 6 of the summary, at d_model = 16
    "alpha_attn": (0.05, 1 / math.sqrt(16)),
    "alpha_mlp": (0.05, 1 / math.sqrt(16)),
    "s_qk": (1.0, 1 / math.sqrt(16)),
    "s_u": (1.0, 1.0),
    "s_nu": (1.0, 1.0),
    "s_z": (1.0, 1 / math.sqrt(16)),
}


def scales(model: Transformer, name: str) -> list[Scale]:
    """The factors called `name` of all layers."""
    return [m for path, m in model.named_modules() if path.rpartition(".")[2] == name]


@pytest.mark.parametrize("name", SCALE_NAMES)
def test_factors_of_a_model_start_and_move_as_the_paper_says(name: str) -> None:
    config = tiny_config()
    model = Transformer(config).double()
    init, scale = PAPER[name]
    for factors in scales(model, name):
        assert torch.allclose(factors.stored, torch.full_like(factors.stored, scale))
        assert torch.allclose(factors(), torch.full_like(factors(), init))

    lr = 1e-3
    optimizer = AdamW(model, lr=lr, eps=1e-16)  # far below the smallest gradient
    before = [factors().detach().clone() for factors in scales(model, name)]
    tokens = random_tokens(config, batch=4)
    model.loss(tokens, tokens.roll(-1, 1)).backward()
    optimizer.step()
    for old, factors in zip(before, scales(model, name), strict=True):
        moves = (factors().detach() - old).abs()
        assert torch.allclose(moves, torch.full_like(moves, lr * init / scale), rtol=1e-6)


def test_doubling_takes_the_paper_s_number_of_steps() -> None:
    """Its example: from 0.01 to 0.02 at rate 0.001 in 10 steps, from 1 to 2 in 1000."""
    for scale, steps in ((0.01, 10), (1.0, 1000)):
        factors = Scale(1, ResolvedScale(1.0, scale, "vector")).double()
        optimizer = torch.optim.Adam(factors.parameters(), lr=1e-3)
        for _ in range(steps):
            factors.stored.grad = torch.tensor([-1.0]).double()
            optimizer.step()
        assert float(factors().detach()) == pytest.approx(2.0, rel=1e-4)
