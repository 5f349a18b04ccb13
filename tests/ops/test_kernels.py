"""Every kernel, forward and backward, against the reference in float64: odd shapes, T = 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.errors import UserError
from spherelm.model.rope import rope_table
from spherelm.ops import reference
from spherelm.ops.choose import Choice, choose
from spherelm.ops.interface import Operations
from spherelm.ops.names import Kernels
from tests.ops.precision import DEVICES, DTYPES, assert_as_exact_as_plain, draw, results

ROWS_AND_WIDTHS = [(1, 64), (7, 100), (5, 1000), (3, 4096), (2, 8192)]

pytestmark = [
    pytest.mark.parametrize("device", DEVICES),
    pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"]),
]


def operations(kernels: Kernels, x: Tensor) -> Operations:
    """The set of operations for tensors like x; float64, the truth, is always the reference's."""
    return choose(Choice(kernels=kernels), "lerp", 64, x.device, x.dtype)


def by(kernels: Kernels, operation: Callable[..., Any] | str) -> Callable[..., Any]:
    """The operation of this name, or `operation(ops, *inputs)`, with the operations of one kind."""

    def run(*inputs: Tensor) -> Any:
        ops = operations(kernels, inputs[0])
        if isinstance(operation, str):
            return getattr(ops, operation)(*inputs)
        return operation(ops, *inputs)

    return run


@pytest.mark.parametrize(("rows", "D"), ROWS_AND_WIDTHS)
def test_residual_update(rows: int, D: int, dtype: torch.dtype, device: str) -> None:
    inputs = draw([(rows, D), (rows, D), (D,)], dtype, device)
    assert_as_exact_as_plain(by("triton", "update"), reference.residual_lerp, inputs)


@pytest.mark.parametrize(("rows", "D"), ROWS_AND_WIDTHS)
def test_rms_norm(rows: int, D: int, dtype: torch.dtype, device: str) -> None:
    inputs = draw([(rows, D), (D,)], dtype, device)
    assert_as_exact_as_plain(by("triton", "rms_norm"), reference.rms_norm, inputs)


@pytest.mark.parametrize(("rows", "D"), ROWS_AND_WIDTHS)
@pytest.mark.parametrize("adds", [False, True])
def test_rms_norm_beside_the_stream(
    rows: int, D: int, adds: bool, dtype: torch.dtype, device: str
) -> None:
    """h and its norm, or h + y and its norm: two results, whose gradients the kernel adds."""
    inputs = draw([(rows, D), (rows, D), (D,)] if adds else [(rows, D), (D,)], dtype, device)
    name = "add_rms_norm" if adds else "branch_rms_norm"
    # Plain PyTorch rounds each of the two gradients and their sum, the kernel their sum alone.
    assert_as_exact_as_plain(by("triton", name), operation_of_reference(adds), inputs)


def test_the_norm_is_that_of_the_sum_as_it_is_stored(dtype: torch.dtype, device: str) -> None:
    """Its backward, and the next block, read the rounded sum."""
    h, y, gain = draw([(7, 24), (7, 24), (24,)], dtype, device)
    total, normed = by("triton", "add_rms_norm")(h, y, gain)
    assert torch.equal(normed, by("triton", "rms_norm")(total, gain))


def operation_of_reference(adds: bool):  # type: ignore[no-untyped-def]
    def plain(h: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        total = h + rest[0] if adds else h * 1
        return total, reference.rms_norm(total, rest[-1])

    return plain


@pytest.mark.parametrize(
    ("B", "T", "H", "G", "K"),
    [(96, 1, 1, 1, 64), (2, 5, 4, 2, 6), (1, 3, 6, 3, 20), (1, 2, 8, 1, 128), (3, 4, 4, 4, 64)],
)
@pytest.mark.parametrize("kind", ["rope", "sphere", "sphere without norm", "own positions"])
def test_projection_of_q_k_v(
    kind: str, B: int, T: int, H: int, G: int, K: int, dtype: torch.dtype, device: str
) -> None:
    """Compared by what attention sees: the scores of q and k, and v."""
    D = 48
    table = rope_table(T, K, 10000.0, device=torch.device(device))
    if kind == "own positions":  # of each token: (2, B, T, K/2)
        long = rope_table(40, K, 10000.0, device=torch.device(device))
        table = long[:, torch.randint(40, (B, T), device=device)]

    def scores(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        wide = reference.at_least_float32
        k = k.repeat_interleave(H // G, dim=2)
        return torch.einsum("bthk,bshk->bhts", wide(q), wide(k)).to(v.dtype), v * 1

    def project(ops: Operations, h: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        *matrices, s_qk = rest if kind != "rope" else (*rest, None)
        rope = table.double() if h.dtype == torch.float64 else table
        norm = kind in ("sphere", "own positions")
        return scores(*ops.qkv(h, ops.operand(*matrices), rope, s_qk, G, norm))

    shapes = [(B, T, D), (H * K, D), (G * K, D), (G * K, D)]
    inputs = draw(shapes if kind == "rope" else [*shapes, (G * K,)], dtype, device)
    # Gradients of k come from k̂ as it is stored, not in float32: one rounding more.
    assert_as_exact_as_plain(by("triton", project), by("reference", project), inputs, roundings=2)


def test_a_factor_of_zero_loses_nothing(dtype: torch.dtype, device: str) -> None:
    """Where s_qk is 0, q̂ cannot be had from what attention keeps; its gradient is right."""
    B, T, H, K, D = 2, 5, 8, 16, 16
    table = rope_table(T, K, 10000.0, device=torch.device(device))
    inputs = draw([(B, T, D), (H * K, D), (H * K, D), (H * K, D), (H * K,)], dtype, device)
    inputs[-1][::3] = 0.0

    def project(ops: Operations, h: Tensor, *rest: Tensor) -> Tensor:
        *matrices, s_qk = rest
        rope = table.double() if h.dtype == torch.float64 else table
        q, k, _ = ops.qkv(h, ops.operand(*matrices), rope, s_qk, H, True)
        wide = reference.at_least_float32
        return (
            torch.einsum("bthk,bshk->bhts", wide(q), wide(k)).to(h.dtype) + 0 * matrices[-1].sum()
        )

    assert_as_exact_as_plain(by("triton", project), by("reference", project), inputs, roundings=2)


@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 100), (2, 1500)])
def test_swiglu(rows: int, width: int, dtype: torch.dtype, device: str) -> None:
    inputs = draw([(rows, 40), (width, 40), (width, 40)], dtype, device)

    def plain(h: Tensor, W_u: Tensor, W_nu: Tensor) -> Tensor:
        return reference.swiglu(F.linear(h, W_u), F.linear(h, W_nu))

    assert_as_exact_as_plain(
        by("triton", lambda ops, h, *W: ops.swiglu(h, ops.operand(*W))), plain, inputs
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("rows", "D", "V"), [(1, 64, 10), (11, 24, 5003)])
def test_linear_cross_entropy(
    reduction: str,
    scaled: bool,
    rows: int,
    D: int,
    V: int,
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In chunks of a few rows, some of them not counting."""
    from spherelm.ops.triton import cross_entropy

    monkeypatch.setattr(cross_entropy, "_CHUNK_LOGITS", 4 * V)
    targets = torch.randint(V, (1, rows), device=device)
    targets[:, 1::4] = -100

    def loss(ops: Operations, h: Tensor, E_output: Tensor, *s_z: Tensor) -> Tensor:
        return ops.loss(h, E_output, s_z[0] if s_z else None, targets, reduction)

    inputs = draw([(1, rows, D), (V, D), *([(V,)] if scaled else [])], dtype, device)
    # s_z · E_output is rounded for the product, dL/dz for the products after it, and dL/dh twice.
    assert_as_exact_as_plain(
        by("triton", loss),
        by("reference", loss),
        inputs,
        roundings=3,
    )


def test_no_target_counts(dtype: torch.dtype, device: str) -> None:
    h, E_output = draw([(1, 3, 16), (20, 16)], dtype, device)
    targets = torch.full((1, 3), -100, device=device)
    (loss, *grads), _ = results(
        by("triton", lambda ops, h, E: ops.loss(h, E, None, targets, "mean")),
        [h, E_output],
    )
    assert float(loss) == 0
    assert all(not bool(g.any()) for g in grads)


def test_loss_without_gradients_is_the_same(dtype: torch.dtype, device: str) -> None:
    h, E_output = draw([(1, 5, 16), (20, 16)], dtype, device)
    targets = torch.randint(20, (1, 5), device=device)
    ops = operations("triton", h)
    plain = ops.loss(h, E_output, None, targets, "mean")
    E_output.requires_grad_()
    trained = ops.loss(h, E_output, None, targets, "mean")
    assert torch.equal(plain, trained.detach())


@pytest.mark.parametrize("V", [1, 100, 40000])
def test_argmax_is_the_first_of_the_largest(V: int, dtype: torch.dtype, device: str) -> None:
    (x,) = draw([(3, V)], dtype, device)
    x[1, V // 2 :] = x[1].max() + 1
    x[2] = -torch.inf
    found = operations("triton", x).argmax(x)
    assert found.dtype == torch.long
    assert found.tolist() == [int(x[0].float().argmax()), V // 2, 0]


TABLE, TARGETS = rope_table(3, 8, 10000.0), torch.tensor([[4, 0, 8]])
ONCE: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "update": (lambda ops, *x: ops.update(*x), [(3, 16), (3, 16), (16,)]),
    "rms_norm": (lambda ops, *x: ops.rms_norm(*x), [(3, 16), (16,)]),
    "branch_rms_norm": (lambda ops, *x: ops.branch_rms_norm(*x), [(3, 16), (16,)]),
    "add_rms_norm": (lambda ops, *x: ops.add_rms_norm(*x), [(3, 16), (3, 16), (16,)]),
    "swiglu": (lambda ops, h, *W: ops.swiglu(h, ops.operand(*W)), [(3, 16), (8, 16), (8, 16)]),
    "qkv": (
        lambda ops, h, s, *W: ops.qkv(h, ops.operand(*W), TABLE.to(h.device), s, 2, True),
        [(1, 3, 16), (16,), (16, 16), (16, 16), (16, 16)],
    ),
    "loss": (
        lambda ops, h, E, s: ops.loss(h, E, s, TARGETS.to(h.device), "mean"),
        [(1, 3, 16), (9, 16), (9,)],
    ),
}


@pytest.mark.parametrize("kernels", ["triton", "reference"])
@pytest.mark.parametrize(
    ("y", "alpha"), [((2, 3, 16), ()), ((2, 3, 16), (2, 1, 16)), ((2, 3, 1), (16,)), ((16,), (16,))]
)
def test_an_update_of_other_shapes_is_refused(
    y: tuple[int, ...], alpha: tuple[int, ...], kernels: Kernels, dtype: torch.dtype, device: str
) -> None:
    """Plain PyTorch broadcast them; the kernel took the first rates for all, or memory behind."""
    inputs = draw([(2, 3, 16), y, alpha], dtype, device)
    with pytest.raises(UserError, match=r"h and y of one shape \(\.\.\., D\) and alpha of \(D,\)"):
        operations(kernels, inputs[0]).update(*inputs)


@pytest.mark.parametrize("name", ONCE)
def test_a_second_derivative_is_refused(name: str, dtype: torch.dtype, device: str) -> None:
    operation, shapes = ONCE[name]
    inputs = [x.requires_grad_() for x in draw(shapes, dtype, device)]
    out = by("triton", operation)(*inputs)
    outs = out if isinstance(out, tuple) else (out,)
    total = sum(o.square().sum() for o in outs)
    with pytest.raises(UserError, match="second derivatives"):
        torch.autograd.grad(total, inputs, create_graph=True)
