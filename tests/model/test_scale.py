"""`Scale`: stored at `scale`, read as stored · init / scale, in three modes."""

from __future__ import annotations

import pytest
import torch

from spherelm import Transformer
from spherelm.model.config import ResolvedScale, ScaleConfig
from spherelm.model.scale import Scale
from tests.model.tiny import tiny_config


@pytest.mark.parametrize(("mode", "stored"), [("vector", 5), ("scalar", 1), ("fixed", 1)])
def test_modes(mode: str, stored: int) -> None:
    scale = Scale(5, ResolvedScale(init=0.3, scale=0.1, mode=mode))
    assert torch.equal(scale.stored, torch.full((stored,), 0.1))
    assert torch.allclose(scale(), torch.full((5,), 0.3))
    assert len(list(scale.parameters())) == (mode != "fixed")
    assert list(scale.state_dict()) == ["stored"]


def test_a_scalar_learns_from_all_its_elements() -> None:
    scale = Scale(5, ResolvedScale(init=3.0, scale=0.5, mode="scalar"))
    (scale() * torch.arange(5.0)).sum().backward()
    assert float(scale.stored.grad) == pytest.approx(10 * 3.0 / 0.5)


def test_reset_returns_to_the_start() -> None:
    scale = Scale(5, ResolvedScale(init=3.0, scale=0.5, mode="fixed"))
    scale.stored.zero_()
    scale.reset_parameters()
    assert torch.equal(scale(), torch.full((5,), 3.0))


def test_it_says_what_it_is() -> None:
    assert "5, init=3, scale=0.5, mode=vector" in repr(Scale(5, ResolvedScale(3.0, 0.5, "vector")))


def test_a_whole_number_is_as_good_as_a_float() -> None:
    """One that torch could not hold as an integer, too: a file of others may say so."""
    config = tiny_config(s_z=ScaleConfig(init=2, scale=10**30))
    model = Transformer(config)
    assert model.s_z is not None
    assert model.s_z.stored.tolist() == pytest.approx([1e30] * config.vocab_size)
    assert model.s_z().tolist() == pytest.approx([2.0] * config.vocab_size)
