"""The three ways to move on the sphere: LERP, SLERP and the Riemannian step."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spherelm.ops import reference as kernels

RULES = {
    "lerp": kernels.residual_lerp,
    "slerp": kernels.residual_slerp,
    "riemannian": kernels.residual_riemannian,
}


def two_points(angle: float, d: int = 8, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Two unit vectors at an angle, in a random plane."""
    generator = torch.Generator().manual_seed(0)
    plane = torch.linalg.qr(torch.randn(d, 2, generator=generator, dtype=torch.float64)).Q
    h = plane[:, 0]
    b = math.cos(angle) * plane[:, 0] + math.sin(angle) * plane[:, 1]
    return h.to(dtype), b.to(dtype)


def move(rule: str, h: Tensor, y: Tensor, alpha: float | Tensor) -> Tensor:
    """One update of one vector."""
    alpha = torch.as_tensor(alpha, dtype=h.dtype).expand(h.shape[-1])
    return RULES[rule](h.view(1, 1, -1), y.view(1, 1, -1), alpha).view(-1)


def angle_between(a: Tensor, b: Tensor) -> float:
    return 2 * math.atan2(float((a - b).norm()), float((a + b).norm()))


@given(angle=st.floats(0.01, 3.1), alpha=st.sampled_from([0.0, 0.5, 1.0]))
def test_slerp_is_lerp_at_the_ends_and_in_the_middle(angle: float, alpha: float) -> None:
    h, b = two_points(angle)
    # At 3.1 the two halves nearly cancel and leave 2 % of their length, hence 50 times 2^-53.
    assert torch.allclose(move("slerp", h, b, alpha), move("lerp", h, b, alpha), atol=1e-13)


@pytest.mark.parametrize("alpha", [0.2, 0.7])
def test_slerp_is_not_lerp_elsewhere(alpha: float) -> None:
    h, b = two_points(2.0)
    assert (move("slerp", h, b, alpha) - move("lerp", h, b, alpha)).norm() > 0.05


@given(angle=st.floats(1e-6, 3.14), alpha=st.floats(0.0, 1.0))
def test_slerp_goes_the_share_alpha_of_the_way(angle: float, alpha: float) -> None:
    """With one α for all coordinates: at α θ from h and (1 − α) θ from its target."""
    h, b = two_points(angle)
    moved = move("slerp", h, b, alpha)
    # Near the antipode sin θ ≈ 1e-3 magnifies the rounding of h and b, 2^-53, a thousandfold.
    assert angle_between(h, moved) == pytest.approx(alpha * angle, abs=1e-12)
    assert angle_between(moved, b) == pytest.approx((1 - alpha) * angle, abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_no_rate_no_move(rule: str) -> None:
    h, b = two_points(1.0)
    assert torch.allclose(move(rule, h, b, 0.0), h, atol=1e-15)


@pytest.mark.parametrize("rule", ["lerp", "slerp"])
def test_full_rate_arrives(rule: str) -> None:
    h, b = two_points(1.0)
    assert torch.allclose(move(rule, h, b, 1.0), b, atol=1e-15)


def test_riemannian_step_starts_in_the_tangent_space() -> None:
    """An infinitesimal step leaves h at a right angle, with length α sin θ."""
    h, b = two_points(0.7)
    step = (move("riemannian", h, b, 1e-6) - h) / 1e-6
    assert float(step @ h) == pytest.approx(0.0, abs=1e-6)  # the curvature: second order in α
    assert float(step.norm()) == pytest.approx(math.sin(0.7), abs=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_only_the_direction_of_the_target_counts(rule: str) -> None:
    """Norm(y): the update is blind to the length of a block's output."""
    h, b = two_points(1.3)
    assert torch.allclose(move(rule, h, 40 * b, 0.3), move(rule, h, 0.01 * b, 0.3), atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("angle", [0.0, 1e-30, 1e-9, 1e-4, math.pi - 1e-4, math.pi - 1e-9, math.pi])
def test_slerp_is_safe_where_its_formula_is_not(
    angle: float, alpha: float, dtype: torch.dtype
) -> None:
    """0/0 at angle 0 and division by zero at the antipode: still a unit vector and a gradient."""
    h, b = two_points(angle, dtype=dtype)
    rate = torch.full_like(h, alpha)
    inputs = [x.view(1, 1, -1).requires_grad_() for x in (h, b)]
    rate.requires_grad_()
    moved = kernels.residual_slerp(*inputs, rate)
    assert float(moved.detach().norm()) == pytest.approx(1.0, abs=4 * torch.finfo(dtype).eps)
    moved.backward(torch.randn_like(moved))
    for x in (*inputs, rate):
        assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slerp_stays_where_no_path_is_the_shortest(dtype: torch.dtype) -> None:
    """Exactly opposite points, half way: the two halves cancel and leave nothing to normalize."""
    h = torch.zeros(1, 1, 4, dtype=dtype)
    h[..., 0] = 1.0
    y, alpha = -3 * h, torch.full((4,), 0.5, dtype=dtype)
    inputs = [x.requires_grad_() for x in (h, y, alpha)]
    moved = kernels.residual_slerp(*inputs)
    assert torch.equal(moved, h)
    moved.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 1e-3])
def test_slerp_is_exact_at_small_angles_in_float32(angle: float) -> None:
    """Where arccos(h·b) in float32 cannot tell an angle below 3e-4 from 0."""
    h, b = two_points(angle)
    expected = move("slerp", h, b, 0.3)
    assert torch.allclose(move("slerp", h.float(), b.float(), 0.3).double(), expected, atol=1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_coordinates_have_rates_of_their_own(rule: str) -> None:
    """A coordinate with rate 0 keeps its value up to the common factor of Norm."""
    h, b = two_points(1.0)
    alpha = torch.zeros_like(h)
    alpha[3] = 0.4
    ratio = move(rule, h, b, alpha) / h
    untouched = torch.arange(len(h)) != 3
    assert torch.allclose(ratio[untouched], ratio[0].expand(len(h) - 1), atol=1e-13)
    assert abs(float(ratio[3] - ratio[0])) > 1e-3
