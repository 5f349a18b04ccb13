"""The path of a text and its attribution: the model's own numbers, and some computed by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from spherelm import Transformer
from spherelm.inspect.attribution import attribute, half_life, weights
from spherelm.inspect.bounds import look_at_bounds
from spherelm.inspect.path import angle_between, angle_from_circle, look_at_path
from spherelm.inspect.walk import HalfBlock, Walk, read_out, walk
from spherelm.model.config import ScaleConfig
from spherelm.model.part import computing_with
from spherelm.ops import reference
from tests.inspect.planted import LAST, LAST_ANGLE, S_Z, on_circle
from tests.model.tiny import VARIANTS, perturbed, random_tokens, tiny_config


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_a_walk_is_the_models_own_way(fields: dict[str, object]) -> None:
    model = perturbed(tiny_config(**fields))
    tokens = random_tokens(model.config, batch=1)[0]
    way = walk(model, tokens)
    assert len(way.states) == len(way.depths) == 2 * model.config.n_layers + 1
    assert torch.equal(read_out(model, way.last), model(tokens[None])[0])
    narrow = model.float()  # whose own stream is rounded after each step, and the walk's is not
    way = walk(narrow, tokens)
    assert all(state.dtype == torch.float64 for state in way.states)
    torch.testing.assert_close(read_out(narrow, way.last), narrow(tokens[None])[0])


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_contributions_sum_to_the_logit(fields: dict[str, object]) -> None:
    model = perturbed(tiny_config(**fields))
    tokens = random_tokens(model.config, batch=1, length=7)[0]
    targets = random_tokens(model.config, batch=1, length=7)[0]
    found = attribute(model, walk(model, tokens), targets)
    assert found is not None
    logits = model(tokens[None])[0].gather(-1, targets[:, None])[:, 0].tolist()
    for t, logit in enumerate(logits):
        assert sum(part[t] for part in found.contributions) == pytest.approx(logit, abs=1e-10)
    assert found.logits == pytest.approx(logits)
    assert found.largest_error < 1e-10
    narrow = model.float()  # as saved models are
    rounded = attribute(narrow, walk(narrow, tokens), targets)
    assert rounded is not None
    assert rounded.largest_error < 1e-5


def test_contributions_sum_to_large_logits_of_deep_models() -> None:
    """16 layers and an s_z of 200, in float32."""
    config = tiny_config(n_layers=16, s_z=ScaleConfig(init=200.0))
    model = perturbed(config).float()
    tokens = random_tokens(config, batch=1, length=7)[0]
    found = attribute(model, walk(model, tokens), tokens)
    assert found is not None
    assert max(map(abs, found.logits)) > 20
    assert found.largest_error < 1e-5


@pytest.mark.parametrize("update", ["lerp", "slerp", "riemannian"])
def test_a_step_is_its_weights_times_what_it_mixes(update: str) -> None:
    model = perturbed(tiny_config(update=update, signed_alpha=True))
    for step in walk(model, random_tokens(model.config, batch=1)[0]).steps:
        both = weights(step, update)
        assert both is not None
        mixed = both[0] * step.h + both[1] * step.output
        torch.testing.assert_close(mixed, step.after, rtol=0, atol=1e-12)
        assert weights(step, "a rule of tomorrow") is None


def test_a_path_computed_by_hand() -> None:
    model = on_circle()
    way = walk(model, torch.tensor([0]))
    found = look_at_path(model, way, torch.tensor([0]))
    assert found.depths == ("embedding", "attention 1", "MLP 1")
    attention, mlp = found.moves
    # From 0° towards 90°, half of the way: LERP and SLERP agree in the middle.
    assert attention.suggested == pytest.approx((90.0,))
    assert attention.angle == pytest.approx((45.0,))
    assert attention.at_mean_alpha == pytest.approx((45.0,))
    assert attention.from_slerp == pytest.approx((0.0,), abs=1e-6)
    # From 45° towards 180°, a third of the way: SLERP would be at 90°.
    assert mlp.suggested == pytest.approx((135.0,))
    assert mlp.at_mean_alpha == pytest.approx((45.0,))
    assert mlp.angle == pytest.approx((LAST_ANGLE - 45,))
    assert mlp.from_slerp == pytest.approx((90 - LAST_ANGLE,))
    assert mlp.off_geodesic == pytest.approx((0.0,), abs=1e-6)  # all in one plane
    angles = [0.0, 45.0, LAST_ANGLE]  # the target's embedding is at 90°, the other at 0°
    for reading, angle in zip(found.readings, angles, strict=True):
        sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        p = 1 / (1 + math.exp(S_Z * (cosine - sine)))
        assert reading.alignment == pytest.approx((sine,), abs=1e-12)
        assert reading.target_probability == pytest.approx((p,))
        entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
        assert reading.entropy == pytest.approx((entropy,))
        ids, probabilities = zip(*reading.top[0], strict=True)
        assert sorted(ids) == [0, 1]
        assert probabilities[0] == pytest.approx(max(p, 1 - p))


def test_an_attribution_computed_by_hand() -> None:
    model = on_circle()
    way = walk(model, torch.tensor([0]))
    length = math.hypot(*LAST)
    # The last state is (embedding + attention) · sqrt(1/2) · 2 and the MLP's (−1, 0), over length.
    for target, parts in (
        (0, (0.0, math.sqrt(2) / length, 0.0)),
        (1, (math.sqrt(2) / length, 0.0, -1 / length)),
    ):
        found = attribute(model, way, torch.tensor([target]))
        assert found is not None
        values = [part[0] for part in found.contributions]
        assert values == pytest.approx([S_Z * part for part in parts], abs=1e-12)


def life(way: Walk, source: int) -> float | None:
    mixed = [weights(step, "lerp") for step in way.steps]
    return half_life(way, source, [both for both in mixed if both is not None])


def test_half_life_computed_by_hand() -> None:
    e = torch.eye(4, dtype=torch.float64)
    alpha, steps, h = torch.full((4,), 0.5, dtype=torch.float64), [], e[:1]
    for i in range(1, 4):  # each suggestion at a right angle: every share shrinks by sqrt(2)
        after = torch.nn.functional.normalize(h + e[i : i + 1], dim=-1)
        steps.append(HalfBlock(i, "attention", h, e[i : i + 1], alpha, after, h))
        h = after
    way = Walk(torch.tensor([0]), e[:1], steps)
    assert life(way, 0) == pytest.approx(2.0)
    assert life(way, 1) == pytest.approx(2.0)
    assert life(way, 2) is None  # one more half-block leaves 71%
    assert life(way, 3) is None


def test_half_life_where_coordinates_have_rates_of_their_own() -> None:
    root = math.sqrt(1 / 2)
    h, output, after, last = torch.tensor(
        [[0, 0, 1], [root, root, 0], [0.5, 0.5, root], [0, 0.25, root]], dtype=torch.float64
    ).split(1)
    last = last / 0.75  # the first coordinate is forgotten, the second halved
    half, rates = torch.full((3,), 0.5, dtype=torch.float64), torch.tensor([1, 0.5, 0]).double()
    way = Walk(
        torch.tensor([0]),
        h,
        [
            HalfBlock(1, "attention", h, output, half, after, h),
            HalfBlock(1, "MLP", after, h, rates, last, h),
        ],
    )
    left = (0.25 / 0.75) / root  # of (1/2, 1/2, 0), whose length is sqrt(1/2)
    assert life(way, 1) == pytest.approx(0.5 / (1 - left))


def test_gpts_contributions_fade_as_its_state_grows() -> None:
    e = torch.eye(2, dtype=torch.float64)
    added = math.sqrt(15) * e[1:]
    first = HalfBlock(1, "attention", e[:1], added, None, e[:1] + added, e[:1])
    way = Walk(torch.tensor([0]), e[:1], [first])
    assert life(way, 0) == pytest.approx(2 / 3)  # from 1 to 1/4, on a line


def test_angles() -> None:
    a, b = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[1.0, 1e-6, 0.0]])
    # float32 holds 1e-6 to 24 bits; arccos of its cosine would be 0
    assert float(angle_between(a, b)) == pytest.approx(math.degrees(1e-6), rel=1e-6)
    x = torch.tensor([[1.0, 1.0, 1.0]])
    off = angle_from_circle(x, torch.eye(3)[:1], torch.tensor([[1.0, 1.0, 0.0]]))
    assert float(off) == pytest.approx(math.degrees(math.asin(1 / math.sqrt(3))))


def test_rates_that_differ_leave_the_geodesic() -> None:
    model = perturbed(tiny_config())
    found = look_at_path(model, walk(model, torch.tensor([1, 2])), torch.tensor([2, 3]))
    assert all(min(move.off_geodesic or (0.0,)) > 0.01 for move in found.moves)


def test_operands_computed_by_hand() -> None:
    model = on_circle()
    found = look_at_bounds(model, walk(model, torch.tensor([0])))
    qkv, scores, values, o, u_nu, o_mlp, logits = found
    assert (qkv.inputs, o.inputs) == ((1.0,), (1.0,))  # h at 0°, v = h
    assert (values.inputs, values.matrices) == ((1.0,), (1.0,))
    s_qk = float(model.layers[0].attention.s_qk().detach().max())  # type: ignore[misc]
    assert scores.input_limit == pytest.approx(s_qk)
    # in two dimensions a unit vector times s_qk has a number of at least s_qk/sqrt(2)
    for largest in (scores.inputs[0], scores.matrices[0]):
        assert s_qk * math.sqrt(1 / 2) <= largest <= s_qk * (1 + 1e-12)
    half = math.sqrt(1 / 2)
    assert u_nu.inputs == pytest.approx((half,))
    assert u_nu.matrices == pytest.approx((math.sqrt(2),))  # s_ν · sqrt(D)
    assert o_mlp.inputs == pytest.approx((half / (1 + math.exp(-1)),))  # u SiLU(ν), ν = 1
    assert o_mlp.input_limit == pytest.approx(math.sqrt(2))
    assert logits.inputs == pytest.approx((max(LAST) / math.hypot(*LAST),))


def test_operands_are_the_papers_whatever_computes() -> None:
    """Kernels have both factors on q, which then is above what is said to bound it."""
    model = perturbed(tiny_config(s_qk=ScaleConfig(init=3.0)))
    tokens = random_tokens(model.config, batch=1)[0]

    def on_q(*given: Any, **_: Any) -> Any:
        return reference.project_qkv(*given[:6], factors_on_q=True)

    twin = computing_with(model, dataclasses.replace(model.ops, qkv=on_q))
    torch.testing.assert_close(twin(tokens[None]), model(tokens[None]))
    assert look_at_bounds(twin, walk(twin, tokens)) == look_at_bounds(model, walk(model, tokens))


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_nothing_exceeds_its_limit(fields: dict[str, object]) -> None:
    model = perturbed(tiny_config(**fields))
    for each in look_at_bounds(model, walk(model, random_tokens(model.config, batch=1)[0])):
        free = model.config.arch == "gpt" and (each.product != "q kᵀ" or not model.config.has_s_qk)
        assert (each.input_limit is None) == free
        if each.input_limit is not None:
            assert max(each.inputs) <= each.input_limit * (1 + 1e-12)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_the_limit_of_q_is_where_two_cosines_are_turned_into_one(qk_norm: bool) -> None:
    """All tokens and all rows of W_q the same: without Norm a pair (1, 1) is turned by a radian,
    and one of its numbers becomes cos 1 + sin 1."""
    model = Transformer(tiny_config(qk_norm=qk_norm)).double()
    with torch.no_grad():
        for matrix in (model.E_input, model.layers[0].attention.W_q):
            matrix.copy_(model.E_input[:1].expand_as(matrix))
    scores = look_at_bounds(model, walk(model, torch.tensor([0, 0])))[1]
    assert scores.product == "q kᵀ"
    assert scores.input_limit == pytest.approx(1 if qk_norm else math.sqrt(2))
    if not qk_norm:
        assert scores.inputs[0] == pytest.approx(math.cos(1) + math.sin(1))
