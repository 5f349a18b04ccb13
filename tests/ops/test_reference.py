"""The derivatives written by hand in `reference` are those of its forwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from spherelm.errors import UserError
from spherelm.model.rope import rope_table
from spherelm.ops import reference

B, T, H, G, K = 2, 3, 4, 2, 6
D = H * K
TABLE = rope_table(T, K, 10000.0, dtype=torch.float64)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


CASES: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "normalize": (reference.normalize, [(B, T, D)]),
    "residual_lerp": (reference.residual_lerp, [(B, T, D), (B, T, D), (D,)]),
    "residual_slerp": (reference.residual_slerp, [(B, T, D), (B, T, D), (D,)]),
    "residual_riemannian": (reference.residual_riemannian, [(B, T, D), (B, T, D), (D,)]),
    "rms_norm": (reference.rms_norm, [(B, T, D), (D,)]),
    "rotate": (lambda x: reference.rotate(x, TABLE), [(B, T, H, K)]),
    "qk_on_sphere": (
        lambda q, k, s: reference.qk_on_sphere(q, k, TABLE, s, True),
        [(B, T, H, K), (B, T, G, K), (G * K,)],
    ),
    "qk_without_norm": (
        lambda q, k, s: reference.qk_on_sphere(q, k, TABLE, s, False),
        [(B, T, H, K), (B, T, G, K), (G * K,)],
    ),
    "swiglu": (reference.swiglu, [(B, T, D), (B, T, D)]),
}


@pytest.mark.parametrize("name", CASES)
def test_derivative(name: str) -> None:
    operation, shapes = CASES[name]
    torch.manual_seed(0)
    assert gradcheck(operation, [draw(*shape) for shape in shapes])


@pytest.mark.parametrize("name", CASES)
def test_a_second_derivative_is_right_or_refused(name: str) -> None:
    """A derivative written by hand keeps numbers of the forward, which look like constants."""
    operation, shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [draw(*shape) for shape in shapes]
    if name in ("residual_slerp", "residual_riemannian"):  # made of torch's own operations
        assert gradgradcheck(operation, inputs)
        return
    out = operation(*inputs)
    outs = out if isinstance(out, tuple) else (out,)
    total = sum(o.square().sum() for o in outs)
    with pytest.raises(UserError, match="second derivatives"):
        torch.autograd.grad(total, inputs, create_graph=True)


@pytest.mark.parametrize("name", CASES)
def test_low_precision_in_low_precision_out(name: str) -> None:
    """bfloat16 streams stay bfloat16, and so do their gradients; factors keep float32."""
    operation, shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [
        torch.randn(shape, dtype=torch.float32 if len(shape) == 1 else torch.bfloat16)
        for shape in shapes
    ]
    for x in inputs:
        x.requires_grad_()
    out = operation(*inputs)
    outs = out if isinstance(out, tuple) else (out,)
    assert all(isinstance(o, Tensor) and o.dtype == torch.bfloat16 for o in outs)
    grads = torch.autograd.grad(sum(o.float().sum() for o in outs), inputs)
    assert [g.dtype for g in grads] == [x.dtype for x in inputs]


def test_the_epsilons_are_those_that_kernels_have() -> None:
    short = torch.tensor([[reference.NORM_EPS / 4, 0.0]])
    torch.testing.assert_close(reference.normalize(short), torch.tensor([[0.25, 0.0]]))
    x = torch.full((1, 4), 3 * reference.RMS_NORM_EPS).sqrt()  # of mean square 3 epsilons
    expected = torch.full((1, 4), 0.75).sqrt()
    torch.testing.assert_close(reference.rms_norm(x, torch.ones(4)), expected)


def test_norm_of_zero_is_zero() -> None:
    assert torch.equal(reference.normalize(torch.zeros(2, 8)), torch.zeros(2, 8))
    x = torch.zeros(2, 8, requires_grad=True)
    reference.normalize(x).sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())
