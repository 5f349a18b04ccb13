"""RoPE: a rotation, whose dot products know distances and not positions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spherelm import Transformer
from spherelm.errors import UserError
from spherelm.model.rope import rope_table
from spherelm.ops import reference as ops
from tests.model.tiny import random_tokens, tiny_config


@given(half=st.integers(1, 8), length=st.integers(1, 9), seed=st.integers(0, 99))
def test_rotation_keeps_lengths(half: int, length: int, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(2, length, 3, 2 * half, dtype=torch.float64)
    turned = ops.rotate(x, rope_table(length, 2 * half, 10000.0, dtype=torch.float64))
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-14)
    assert torch.equal(turned[:, 0], x[:, 0])  # position 0 is not turned


@given(half=st.integers(1, 8), base=st.floats(2.0, 1e6), seed=st.integers(0, 99))
def test_scores_depend_only_on_the_distance(half: int, base: float, seed: int) -> None:
    """The same q and k at every position: the scores are constant along each diagonal."""
    torch.manual_seed(seed)
    length = 12
    q, k = torch.randn(2, 1, 1, 1, 2 * half, dtype=torch.float64)
    table = rope_table(length, 2 * half, base, dtype=torch.float64)
    turned_q, turned_k = (ops.rotate(x.expand(1, length, 1, -1), table) for x in (q, k))
    scores = torch.einsum("bihk,bjhk->ij", turned_q, turned_k)
    for distance in range(length):
        along = scores.diagonal(-distance)
        assert torch.allclose(along, along[0].expand_as(along), atol=1e-12)
    assert (scores[1, 0] - scores[0, 0]).abs() > 1e-6  # and they do depend on it


@pytest.mark.parametrize("qk_norm", [False, True])
def test_scores_of_an_ngpt_depend_only_on_the_distance_while_pairs_share_a_factor(
    qk_norm: bool,
) -> None:
    """The paper multiplies by s_qk after the rotation: factors that differ within a pair undo it.

    At the start, where all are equal, scores depend on distances alone; a trained s_qk is free to
    make them depend on positions, too.
    """

    def spread_along_diagonals(s_qk: torch.Tensor) -> float:
        q, k = torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)
        table = rope_table(12, 6, 100.0, dtype=torch.float64)
        q, k = q.expand(1, 12, 1, 6), k.expand(1, 12, 1, 6)
        q, k = ops.qk_on_sphere(q, k, table, s_qk, qk_norm)
        scores = torch.einsum("bihk,bjhk->ij", q, k)
        spreads = [scores.diagonal(-d).max() - scores.diagonal(-d).min() for d in range(12)]
        return float(max(spreads))

    halves = torch.rand(3, dtype=torch.float64)
    assert spread_along_diagonals(torch.cat((halves, halves))) < 1e-13
    assert spread_along_diagonals(torch.cat((halves, 1 - halves))) > 1e-3


def test_angles_are_the_paper_s() -> None:
    """Pair i at position t: t · 10000^(−2i/K); the first coordinate pairs with the one K/2 on."""
    table = rope_table(5, 6, 10000.0, dtype=torch.float64)
    x = torch.zeros(1, 5, 1, 6, dtype=torch.float64)
    x[..., 1] = 1.0
    turned = ops.rotate(x, table)[0, 4, 0]
    angle = 4 * 10000 ** (-2 / 6)
    expected = torch.zeros(6, dtype=torch.float64)
    expected[1], expected[4] = math.cos(angle), math.sin(angle)
    assert torch.allclose(turned, expected, atol=1e-15)


def test_table_is_exact_at_positions_where_float32_angles_are_not() -> None:
    """An angle of 8191 in float32 is off by 2^-12: the table is made in float64."""
    table = rope_table(8192, 2, 10000.0)
    assert table.dtype == torch.float32
    assert float(table[0, 8191, 0]) == pytest.approx(math.cos(8191), abs=1e-7)
    assert float(table[1, 8191, 0]) == pytest.approx(math.sin(8191), abs=1e-7)


@pytest.mark.parametrize(
    ("cast", "expected"),
    [
        (lambda model: model.double(), torch.float64),
        (lambda model: model.bfloat16(), torch.float32),
        (lambda model: model.half(), torch.float32),
        (lambda model: model.bfloat16().double(), torch.float64),
        (lambda model: model.double().float(), torch.float32),
        (lambda model: model.to("cpu"), torch.float32),
    ],
)
def test_table_survives_a_change_of_dtype(cast: object, expected: torch.dtype) -> None:
    """It is made anew: a table cast to bfloat16 and back would turn by wrong angles."""
    config = tiny_config(context=600)
    model = cast(Transformer(config))  # type: ignore[operator]
    assert model.rope.table.dtype == expected
    assert torch.equal(model.rope.table, rope_table(600, 4, 10000.0, dtype=expected))


def test_a_model_made_in_float64_has_such_a_table() -> None:
    """As one that was made in float32 and moved: where torch's default is float64."""
    torch.set_default_dtype(torch.float64)
    try:
        made = Transformer(tiny_config())
    finally:
        torch.set_default_dtype(torch.float32)
    assert made.dtype == torch.float64
    assert torch.equal(made.rope.table, Transformer(tiny_config()).double().rope.table)


def test_table_survives_the_meta_device() -> None:
    config = tiny_config()
    with torch.device("meta"):
        model = Transformer(config)
    assert model.rope.table.is_meta
    model.to_empty(device="cpu")
    assert torch.equal(model.rope.table, rope_table(7, 4, 10000.0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_table_follows_weights_that_are_assigned(dtype: torch.dtype) -> None:
    """No state dict holds it: it stayed where it was, and as exact as it was."""
    model, other = Transformer(tiny_config()), Transformer(tiny_config()).to(dtype)
    model.load_state_dict(other.state_dict(), assign=True)
    assert model.dtype == dtype
    assert torch.equal(model.rope.table, other.rope.table)
    assert model.rope.table.dtype == other.rope.table.dtype


def test_table_is_not_saved() -> None:
    assert not [name for name in Transformer(tiny_config()).state_dict() if "rope" in name]


def test_a_sequence_beyond_the_context_is_refused() -> None:
    config = tiny_config()
    with pytest.raises(UserError, match=r"8 tokens .* context of 7") as refusal:
        Transformer(config)(random_tokens(config, length=8))
    assert "extend_context(8)" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_extended_context_goes_on_with_the_same_angles() -> None:
    config = tiny_config()
    model = Transformer(config).double()
    tokens = random_tokens(config, length=20)
    short = model(tokens[:, :7])
    model.extend_context(20)
    long = model(tokens)
    assert long.shape == (2, 20, 13)
    assert torch.allclose(long[:, :7], short, atol=1e-14)
    model.extend_context(3)  # never shrinks
    assert torch.equal(model(tokens), long)
    assert torch.equal(model.rope.table, rope_table(20, 4, 10000.0, dtype=torch.float64))
