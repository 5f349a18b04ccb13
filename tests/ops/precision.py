"""The rule every kernel is held to: as exact as plain PyTorch in the same precision.

Inputs are drawn in float64 and rounded to the precision at hand, and the truth is the reference in
float64 on those rounded inputs. The error of a result or gradient is ‖x − truth‖ / ‖truth‖. The
kernel's may exceed plain PyTorch's by a margin: sums in another order differ by a few roundings of
float32, and where both round their result to bfloat16, once, errors agree to a few percent.
Triton's interpreter truncates to bfloat16 where a GPU rounds to nearest: twice the error, and where
there are several, they do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

DEVICES = [
    pytest.param("cpu", id="interpreter"),
    pytest.param("cuda", id="gpu", marks=pytest.mark.gpu),
]
DTYPES = [torch.float32, torch.bfloat16]
MARGIN = {torch.float32: 2.0, torch.bfloat16: 1.15}
INTERPRETER_MARGIN = {torch.float32: 2.0, torch.bfloat16: 2.5}
FLOOR = {torch.float32: 4e-7, torch.bfloat16: 2e-4}
"""Errors below this count as none: a few roundings of float32, a twentieth of one of bfloat16."""

Operation = Callable[..., "Tensor | tuple[Tensor, ...]"]


def draw(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: str) -> list[Tensor]:
    """Random inputs: streams in `dtype`, vectors of factors (one dimension) in float32."""
    return [
        torch.randn(shape, dtype=torch.float64).to(
            device, torch.float32 if len(shape) == 1 else dtype
        )
        for shape in shapes
    ]


def results(
    operation: Operation, inputs: Sequence[Tensor], weights: Sequence[Tensor] | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """What an operation gives: its results, then the gradients; and the weights drawn for them."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = operation(*leaves)
    outs = list(out) if isinstance(out, tuple) else [out]
    if weights is None:
        weights = [torch.randn(o.shape, dtype=torch.float64, device=o.device) for o in outs]
    cast = [w.to(o.dtype) for w, o in zip(weights, outs, strict=True)]
    grads = torch.autograd.grad(outs, leaves, cast)
    return [o.detach() for o in outs] + list(grads), list(weights)


def error(x: Tensor, truth: Tensor) -> float:
    return float((x.double() - truth).norm() / truth.norm().clamp_min(1e-300))


def assert_as_exact_as_plain(
    kernel: Operation,
    plain: Operation,
    inputs: Sequence[Tensor],
    roundings: int = 1,
) -> None:
    """Hold `kernel` to `plain` in the precision of the first input.

    `roundings`: how often the kernel rounds to that precision where plain PyTorch rounds once.
    """
    dtype = inputs[0].dtype
    fine = [x.double() for x in inputs]
    truth, weights = results(plain, fine)
    # What comes in is rounded, too: the truth must know the rounded gradients.
    weights = [w.to(dtype).double() for w in weights]
    truth, _ = results(plain, fine, weights)
    ours, _ = results(kernel, inputs, weights)
    theirs, _ = results(plain, inputs, weights)
    if inputs[0].is_cuda:
        margin = MARGIN[dtype] * roundings**0.5
    else:
        margin = INTERPRETER_MARGIN[dtype] * roundings
    for i, (x, y, t) in enumerate(zip(ours, theirs, truth, strict=True)):
        assert x.shape == t.shape
        assert x.dtype == y.dtype
        assert bool(torch.isfinite(x).all())
        bound = margin * error(y, t) + FLOOR[dtype]
        assert error(x, t) <= bound, f"result {i}: {error(x, t):.2e} above {bound:.2e}"
