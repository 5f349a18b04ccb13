"""Embeddings, condition numbers, factors and directions: planted matrices give planted answers."""

from __future__ import annotations

import math

import pytest
import torch

from spherelm import Transformer
from spherelm.inspect import conditions, directions
from spherelm.inspect.conditions import (
    LARGEST,
    condition_numbers,
    look_at_conditions,
    look_at_layer,
    singular_values,
)
from spherelm.inspect.directions import (
    Directions,
    Nearest,
    look_at_directions,
    nearest_by_chance,
)
from spherelm.inspect.distribution import distribution_of
from spherelm.inspect.embeddings import (
    SAMPLED_ROWS,
    SEED,
    covariance_eigenvalues,
    look_at_embeddings,
)
from spherelm.inspect.factors import look_at_factors
from tests.inspect.planted import with_singular_values
from tests.model.tiny import perturbed, tiny_config


def test_distribution_counts_every_number() -> None:
    found = distribution_of(torch.tensor([0.0, 0.1, 0.1, 1.0]), bins=10)
    assert (found.low, found.high) == pytest.approx((0.0, 1.0))
    assert found.counts == (1, 2, 0, 0, 0, 0, 0, 0, 0, 1)
    assert found.mean == pytest.approx(0.3)
    assert found.median == pytest.approx(0.1)
    assert found.std == pytest.approx(math.sqrt((0.09 + 2 * 0.04 + 0.49) / 4))
    assert found.centres[0] == pytest.approx(0.05)
    assert found.quantiles == pytest.approx((0.0, 0.0, 0.1, 0.1, 1.0, 1.0))


def test_numbers_alike_but_for_rounding_are_one_bin() -> None:
    found = distribution_of(1 + 1e-7 * torch.randn(1000))
    assert max(found.counts) == 1000
    assert found.low < 1 < found.high


def test_embeddings_of_known_covariance() -> None:
    lengths = torch.tensor([3.0, 2.0, 1.0, 0.5])
    E = torch.cat((torch.diag(lengths), -torch.diag(lengths)))  # mean 0, covariance lengths²/4
    found = look_at_embeddings("E_input", E)
    # torch's median of four numbers is the lower one of the two in the middle
    assert found.eigenvalues_over_median == pytest.approx([9.0, 4.0, 1.0, 0.25])
    assert found.condition == pytest.approx(36.0)
    assert (found.norms.low, found.norms.high) == pytest.approx((0.5, 3.0))
    assert (found.pairs, found.seed) == (8 * 7 // 2, None)
    assert found.dot_products.low == pytest.approx(-9.0)  # each row with its opposite
    assert found.dot_products.mean == pytest.approx(-(9 + 4 + 1 + 0.25) / 28)


def test_covariance_does_not_see_where_the_middle_is() -> None:
    E = torch.randn(50, 4, dtype=torch.float64)
    moved = covariance_eigenvalues(E + torch.tensor([5.0, -3.0, 0.0, 9.0]))
    torch.testing.assert_close(moved, covariance_eigenvalues(E))


def test_a_large_vocabulary_is_sampled_with_a_stated_seed() -> None:
    E = torch.nn.functional.normalize(torch.randn(5000, 8), dim=-1)
    one, other = (look_at_embeddings("E_input", E) for _ in range(2))
    assert one == other
    assert (one.pairs, one.seed) == (SAMPLED_ROWS * (SAMPLED_ROWS - 1) // 2, SEED)
    assert one.tokens == 5000
    assert abs(one.dot_products.mean) < 0.01  # spread evenly over the sphere


@pytest.mark.parametrize("shape", [(6, 40), (40, 6)])
def test_singular_values_are_those_planted(shape: tuple[int, int]) -> None:
    values = [30.0, 5.0, 2.0, 1.0, 0.1, 0.01]
    W = with_singular_values(*shape, values)
    assert singular_values(W).tolist() == pytest.approx(values, rel=1e-6)
    assert float(condition_numbers(W)) == pytest.approx(3000, rel=1e-6)


@pytest.mark.parametrize("smallest", [0.5, 0.04, 0.02, 0.001])
def test_large_matrices_take_a_quicker_way_where_it_is_enough(
    smallest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "LARGE", 1)
    W = with_singular_values(200, 50, [1.0] * 49 + [smallest])
    for quick in (True, False):
        found = condition_numbers(W.float(), quick)
        assert float(found) == pytest.approx(1 / smallest, rel=2e-3)


def test_a_matrix_of_lower_rank_has_the_largest_condition_number() -> None:
    assert float(condition_numbers(torch.ones(3, 8))) == LARGEST


def test_condition_numbers_are_medians_over_heads() -> None:
    model = Transformer(tiny_config(d_model=12, n_heads=3, n_layers=2, d_mlp=16))
    heads = [with_singular_values(4, 12, [c, 1, 1, 1], seed=c) for c in (2, 8, 4)]
    model.layers[1].attention.W_k.data = torch.cat(heads).float()
    model.layers[0].mlp.W_u.data = with_singular_values(16, 12, [7.0] + [1.0] * 11).float()
    found = {each.matrix: each for each in look_at_conditions(model)}
    assert list(found) == ["W_q", "W_k", "W_v", "W_o", "W_u", "W_nu", "W_o_mlp"]
    assert found["W_k"].by_layer[1] == pytest.approx(4, rel=1e-4)
    assert found["W_u"].by_layer[0] == pytest.approx(7, rel=1e-4)
    assert all(each.rows_normalized is None for each in found.values())  # nGPT's are unit vectors


def test_gpts_condition_numbers_without_the_lengths_of_rows() -> None:
    model = Transformer(tiny_config(arch="gpt", d_model=8, n_heads=2))
    rows = torch.linalg.qr(torch.randn(8, 8))[0]
    model.layers[0].attention.W_q.data = rows * torch.tensor([1.0, 2, 3, 10, 1, 2, 3, 10])[:, None]
    found = look_at_conditions(model)[0]
    assert found.by_layer[0] == pytest.approx(10, rel=1e-5)
    assert found.rows_normalized is not None
    assert found.rows_normalized[0] == pytest.approx(1, rel=1e-5)


def test_one_layer_in_full() -> None:
    model = Transformer(tiny_config(d_model=12, n_heads=3, n_layers=2))
    planted = [float(i) for i in range(12, 0, -1)]
    model.layers[1].attention.W_o.data = with_singular_values(12, 12, planted).float()
    q, _, _, o = look_at_layer(model, 1)
    assert o.matrix == "W_o"
    assert o.singular_values == pytest.approx(planted, rel=1e-5)
    assert q.norms.mean == pytest.approx(1, abs=1e-6)


def test_factors_are_those_that_the_forward_pass_uses() -> None:
    model = Transformer(tiny_config(n_layers=2, d_model=8, n_heads=2))
    alpha = model.layers[1].alpha_attn  # stored at 1/sqrt(8), read from 0.05
    with torch.no_grad():
        alpha.stored.copy_(alpha.stored * torch.tensor([2.0, -4.0] * 4))
        model.s_z.stored.mul_(3)  # type: ignore[union-attr]
    found = {each.name: each for each in look_at_factors(model)}
    assert list(found) == ["alpha_attn", "alpha_mlp", "s_u", "s_nu", "s_qk", "s_z"]
    assert found["alpha_attn"].means == pytest.approx((0.05, 0.15))  # |α|: 0.1 and 0.2
    assert found["alpha_attn"].stds == pytest.approx((0.0, 0.05), abs=1e-6)
    assert found["alpha_attn"].start == 0.05
    assert found["alpha_attn"].all_layers.mean == pytest.approx(0.1)
    assert found["s_z"].means == pytest.approx((3.0,))
    assert look_at_factors(Transformer(tiny_config(arch="gpt"))) == []


def test_the_nearest_tokens_of_a_direction() -> None:
    E = torch.eye(6)
    tokens, cosines = Nearest(3 * E)(torch.stack((5 * E[3], E[1] + 0.5 * E[4])))
    assert tokens.shape == cosines.shape == (2, 5)
    assert tokens[0, 0] == 3
    assert cosines[0, :2].tolist() == pytest.approx([1.0, 0.0])
    assert tokens[1, :2].tolist() == [1, 4]
    assert cosines[1, :2].tolist() == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5)])
    found = Directions("W_u", "E_input", 1, tokens, cosines)
    assert found.strongest(1) == [0]
    assert found.nearest[1] == pytest.approx((1 + 2 / math.sqrt(5)) / 2)
    assert found.rows()["cosines"][1][0] == 0.8944


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("tokens", [3, 100, 70_001])
def test_the_nearest_are_those_of_a_sorting(
    tokens: int, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "_faster", lambda one, other: True)
    generator = torch.Generator().manual_seed(0)
    E, rows = (torch.randn(n, 64, generator=generator) for n in (tokens, 30))
    near = Nearest(E, bf16)
    assert near.quick.dtype == (torch.bfloat16 if bf16 and tokens > 70_000 else torch.float32)
    ids, cosines = near(rows)
    unit = [torch.nn.functional.normalize(x, dim=-1) for x in (rows, E)]
    sorted_ = (unit[0] @ unit[1].T).topk(min(5, tokens), dim=-1)
    torch.testing.assert_close(cosines, sorted_.values)
    assert torch.equal(ids, sorted_.indices)


def test_what_is_read_is_near_the_input_and_what_is_written_near_the_output() -> None:
    model = perturbed(tiny_config(n_layers=2))
    with torch.no_grad():
        model.layers[0].mlp.W_u[2] = model.E_input[4]
        model.layers[1].mlp.W_o_mlp[2] = model.E_output[1]  # type: ignore[index]
    found = look_at_directions(model, 1)
    assert [(each.matrix, each.layer) for each in found] == [
        *(("W_u", 1), ("W_u", 2)),
        *(("W_o_mlp", 1), ("W_o_mlp", 2)),
    ]
    reads, *_, writes = found
    assert (reads.embedding, int(reads.tokens[2, 0])) == ("E_input", 4)
    assert (writes.embedding, int(writes.tokens[2, 0])) == ("E_output", 1)


@pytest.mark.parametrize(("tokens", "d_model"), [(257, 128), (8000, 64), (8000, 512)])
def test_chance_is_what_random_directions_have(tokens: int, d_model: int) -> None:
    generator = torch.Generator().manual_seed(1)
    E, rows = (torch.randn(n, d_model, generator=generator) for n in (tokens, 2000))
    median = float(Nearest(E)(rows)[1][:, 0].median())
    assert nearest_by_chance(tokens, d_model) == pytest.approx(median, rel=0.02)


def test_of_a_large_gpt_one_layer_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directions, "AFFORDABLE", 0)
    gpt, ngpt = (Transformer(tiny_config(arch=arch, n_layers=3)) for arch in ("gpt", "ngpt"))
    assert [each.layer for each in look_at_directions(gpt, 2)] == [2, 2]
    assert [each.layer for each in look_at_directions(ngpt, 2)] == [1, 2, 3, 1, 2, 3]
