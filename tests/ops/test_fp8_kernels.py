"""Each kernel that rounds to eight bits, against float64 rounded as it rounds; odd shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spherelm.model.rope import rope_table
from spherelm.ops import reference
from spherelm.ops.eight_bits import E4M3, E5M2, padded
from tests.ops.eight_bits import assert_rounds, assert_turned, exact_rounding
from tests.ops.precision import DEVICES, DTYPES, draw, error

__all__ = ["exact_rounding"]

pytestmark = [
    pytest.mark.parametrize("device", DEVICES),
    pytest.mark.usefixtures("exact_rounding"),
]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])


def number(value: float, device: str) -> Tensor:
    return torch.tensor(value, device=device)


@dtypes
@pytest.mark.parametrize("format", [E4M3, E5M2], ids=["e4m3", "e5m2"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (130, 80)])
def test_an_operand_both_ways_round(
    rows: int, columns: int, format: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    """Also numbers too large, too small, and not normal in the format."""
    from spherelm.ops.triton.fp8_cast import cast_

    (x,) = draw([(rows, columns)], torch.float32, device)
    x = (x * torch.exp(4 * torch.randn_like(x))).to(dtype)
    out = torch.empty(rows, columns, dtype=format, device=device)
    turned = torch.empty(columns, padded(rows), dtype=format, device=device)
    amax = number(0.0, device)
    cast_(x, number(16.0, device), amax, out, turned)
    assert_rounds(out, x.double() * 16, slack=0)
    assert_turned(turned, out)
    assert float(amax) == float(x.abs().max())
    cast_(x / 2, number(16.0, device), amax, out, turned)
    assert float(amax) == float(x.abs().max())  # the largest of both


def test_bytes_transposed(device: str) -> None:
    from spherelm.ops.triton.fp8_cast import turn_

    bits = torch.randint(256, (150, 272), dtype=torch.uint8, device=device).view(E5M2)
    turned = torch.empty(272, padded(150), dtype=E5M2, device=device)
    turn_(bits, turned)
    assert_turned(turned, bits)


@dtypes
def test_matrices_below_each_other(dtype: torch.dtype, device: str) -> None:
    from spherelm.ops.triton.fp8_cast import Matrices, cast_matrices_

    products = []
    for shapes, scale in (([(144, 96), (32, 96), (16, 96)], 64.0), ([(256, 64)], 2.0)):
        rows, D = sum(n for n, _ in shapes), shapes[0][1]
        out = torch.empty(rows, D, dtype=E4M3, device=device)
        turned = torch.empty(D, rows, dtype=E4M3, device=device)
        products.append(Matrices(draw(shapes, dtype, device), number(scale, device), out, turned))
    cast_matrices_(products)
    for matrices, factor, out, turned in products:
        assert_rounds(out, torch.cat(list(matrices)).double() * factor, slack=0)
        assert_turned(turned, out)


@dtypes
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("N", "F"), [(133, 80), (1024, 64)], ids=["odd", "full tiles"])
def test_swiglu(N: int, F: int, scaled: bool, dtype: torch.dtype, device: str) -> None:
    from spherelm.ops.triton.fp8_swiglu import swiglu, swiglu_backward

    packed, grad, s_u, s_nu = draw([(N, 2 * F), (N, F), (F,), (F,)], dtype, device)
    factors = (s_u, s_nu) if scaled else None
    amax = number(0.0, device)
    leaves = [x.double().requires_grad_() for x in (packed, s_u, s_nu)]
    u, nu = leaves[0].chunk(2, dim=-1)
    exact = reference.swiglu(u * leaves[1], nu * leaves[2]) if scaled else reference.swiglu(u, nu)
    bits, turned = swiglu(packed, factors, number(32.0, device), amax, E4M3)
    assert_rounds(bits, exact.detach() * 32)
    assert_turned(turned, bits)
    torch.testing.assert_close(amax.double(), exact.detach().abs().max(), rtol=1e-5, atol=0)

    seen = number(0.0, device)
    grads = torch.autograd.grad(exact, leaves if scaled else leaves[:1], grad.double())
    bits, turned, sums = swiglu_backward(packed, factors, grad, number(8.0, device), seen, E5M2)
    assert_rounds(bits, grads[0] * 8)
    assert_turned(turned, bits)
    torch.testing.assert_close(seen.double(), grads[0].abs().max(), rtol=1e-5, atol=0)
    assert sums.shape == ((2 * F,) if scaled else (0,))
    if scaled:
        assert error(sums, torch.cat(grads[1:])) < 1e-5


@dtypes
@pytest.mark.parametrize(
    ("B", "T", "H", "G", "K"), [(3, 45, 2, 2, 16), (1, 5, 4, 1, 6), (2, 64, 4, 2, 64)]
)
@pytest.mark.parametrize("kind", ["rope", "sphere", "sphere without norm"])
def test_gradient_of_q_k_v(
    kind: str, B: int, T: int, H: int, G: int, K: int, dtype: torch.dtype, device: str
) -> None:
    from spherelm.ops.triton.fp8_qkv import qkv_backward
    from spherelm.ops.triton.qk import qk_on_sphere_, rotate_qk_

    N, width, norm = B * T, (H + 2 * G) * K, kind == "sphere"
    packed, grad_q, grad_k, grad_v, s_qk = draw(
        [(N, width), (B, T, H, K), (B, T, G, K), (B, T, G, K), (G * K,)], dtype, device
    )
    grad_k = grad_k.transpose(1, 2).contiguous().transpose(1, 2)  # strides of an attention's own
    table = rope_table(T, K, 10000.0, device=torch.device(device))
    leaves = [packed.double().requires_grad_(), s_qk.double().requires_grad_()]
    q, k, v = leaves[0].view(B, T, -1, K).split((H, G, G), dim=2)
    if kind == "rope":
        out = (*(reference.rotate(x, table.double()) for x in (q, k)), v)
    else:
        on_q = reference.heads_on_sphere(q, table.double(), leaves[1].square(), G, norm)
        one = torch.ones_like(leaves[1])
        out = (on_q, reference.heads_on_sphere(k, table.double(), one, G, norm), v)
    given = [g.double() for g in (grad_q, grad_k, grad_v)]
    wanted = leaves[:1] if kind == "rope" else leaves
    exact = torch.autograd.grad(out, wanted, given)

    kept, inverse, rows = None, None, packed.clone()
    if kind == "rope":
        rotate_qk_(rows, table, H, G)
    else:
        _, inverse = qk_on_sphere_(rows, table, s_qk, H, G, norm)
        kept = rows
    amax, factors = number(0.0, device), None if kind == "rope" else s_qk
    bits, turned, dot = qkv_backward(
        kept, table, factors, inverse, (grad_q, grad_k, grad_v), norm, number(4.0, device), amax,
        E5M2,
    )  # fmt: skip
    assert_turned(turned, bits)
    torch.testing.assert_close(amax.double(), exact[0].abs().max(), rtol=2e-2, atol=0)
    if dtype == torch.float32:
        assert_rounds(bits, exact[0] * 4)
    else:  # k̂ and s_qk² q̂ are kept in bfloat16: the truth itself is off by that
        assert error(bits, exact[0] * 4) < 1.1 * error(
            (exact[0] * 4).float().to(E5M2), exact[0] * 4
        )
    if kind != "rope":
        assert error(2 * s_qk * dot, exact[1]) < (1e-5 if dtype == torch.float32 else 1e-2)


@dtypes
@pytest.mark.parametrize("forked", [True, False])
@pytest.mark.parametrize(("rows", "D"), [(7, 100), (5, 1024)])
def test_gradient_of_the_update(
    rows: int, D: int, forked: bool, dtype: torch.dtype, device: str
) -> None:
    from spherelm.ops.triton.fp8_residual import residual_backward

    h, y, alpha, grad, more = draw(
        [(rows, D), (rows, D), (D,), (rows, D), (rows, D)], dtype, device
    )
    leaves = [x.double().requires_grad_() for x in (h, y, alpha)]
    total = grad.double() + more.double() if forked else grad.double()
    exact = torch.autograd.grad(reference.residual_lerp(*leaves), leaves, total)
    amax = number(0.0, device)
    grad_h, bits, grad_alpha = residual_backward(
        h, y, alpha, grad, more if forked else None, number(256.0, device), amax, E5M2
    )
    assert_rounds(bits, exact[1] * 256)
    torch.testing.assert_close(amax.double(), exact[1].abs().max(), rtol=1e-5, atol=0)
    assert error(grad_h, exact[0]) < (1e-6 if dtype == torch.float32 else 6e-3)
    assert error(grad_alpha, exact[2]) < 1e-5
