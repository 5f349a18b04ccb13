"""The pass of torch.compile that spares the copy of an addend."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("triton")


def rewritten(function, *inputs: Tensor) -> tuple[GraphModule, int]:  # type: ignore[no-untyped-def]
    """A function's graph after the pass, and how many products it now adds in place."""
    from spherelm.ops.add_in_place import ADD_IN_PLACE

    module = make_fx(function, tracing_mode="fake")(*inputs)
    ADD_IN_PLACE(module.graph)
    module.recompile()
    in_place = torch.ops.spherelm.add_product_.default
    return module, len(module.graph.find_nodes(op="call_function", target=in_place))


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    h, y, grad = (torch.randn(5, 8) for _ in range(3))
    return [h, y, torch.rand(8), grad, torch.randn(5, 3), torch.randn(3, 8)]


def test_a_gradient_of_ours_takes_the_product_in_place() -> None:
    from spherelm.ops.triton.residual import residual_lerp_backward

    def backward(h: Tensor, y: Tensor, alpha: Tensor, grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
        grad_h, grad_y, _ = residual_lerp_backward(h, y, alpha, grad)
        return torch.addmm(grad_h, a, b) * 2 + grad_y

    module, count = rewritten(backward, *inputs())
    assert count == 1
    torch.testing.assert_close(module(*inputs()), backward(*inputs()))


def test_what_someone_else_reads_stays_as_it_is() -> None:
    """An input, a gradient with a second reader, one of another shape, and a scaled product."""
    from spherelm.ops.triton.residual import residual_lerp_backward

    def backward(h: Tensor, y: Tensor, alpha: Tensor, grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
        grad_h, grad_y, grad_alpha = residual_lerp_backward(h, y, alpha, grad)
        read_twice = torch.addmm(grad_h, a, b) + grad_h
        given = torch.addmm(h, a, b)
        repeated = torch.addmm(grad_alpha, a, b)
        scaled = torch.addmm(grad_y, a, b, beta=0.5)
        return read_twice + given + repeated + scaled

    module, count = rewritten(backward, *inputs())
    assert count == 0
    torch.testing.assert_close(module(*inputs()), backward(*inputs()))
