"""Which attention is taken, and FlashAttention 4 held to plain attention where it is installed."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor

from spherelm.errors import UserError
from spherelm.ops import attention, flash4
from spherelm.ops.attention import choose_attention, flash_attention_3
from spherelm.ops.names import AttentionBackend
from tests.ops.precision import assert_as_exact_as_plain, draw

needs_fa4 = pytest.mark.skipif(
    torch.cuda.is_available() and flash4.unavailable() is not None,
    reason="flash-attn-4 is not installed",
)


def test_what_is_not_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name}")

    monkeypatch.setattr(flash4, "unavailable", lambda: "pip install flash-attn-4")
    monkeypatch.setattr(attention, "activate_flash_attention_impl", not_installed)
    with pytest.raises(UserError, match="fa4 is not available here: pip install flash-attn-4"):
        choose_attention("fa4", torch.device("cpu"))
    with pytest.raises(UserError, match="fa3 is not available here: No module named FA3"):
        flash_attention_3("fa3").__enter__()


def test_flash_attention_3_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(attention, "activate_flash_attention_impl", done.append)
    monkeypatch.setattr(attention, "restore_flash_attention_impl", lambda: done.append("back"))
    with flash_attention_3("auto"):
        assert done == []
    with pytest.raises(ZeroDivisionError), flash_attention_3("fa3"):
        done.append(str(1 / 0))
    assert done == ["FA3", "back"]


def test_why_flash_attention_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, an old one, not installed, another version; and where all is well."""

    def why() -> str | None:
        flash4._interface.cache_clear()
        return flash4.unavailable.__wrapped__()

    interface = ModuleType("flash_attn.cute.interface")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "needs a GPU of compute capability 9.0" in str(why())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert "needs a GPU of compute capability 9.0" in str(why())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    monkeypatch.delitem(sys.modules, "flash_attn.cute.interface", raising=False)
    assert why() == "pip install flash-attn-4"
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", interface)
    assert "does not load: this version has no _flash_attn_fwd" in str(why())
    monkeypatch.setattr(interface, "_flash_attn_fwd", None, raising=False)
    monkeypatch.setattr(interface, "_flash_attn_bwd", None, raising=False)
    assert why() is None
    flash4._interface.cache_clear()


def test_a_cpu_computes_attention_whatever_is_forced() -> None:
    q, k, v = (torch.randn(2, 5, 3, 8) for _ in range(3))
    plain = attention.attend_plainly(q, k, v, None, True, 0.3)
    named = choose_attention("cudnn", torch.device("cpu"))
    assert torch.equal(named(q, k, v, None, True, 0.3), plain)


def test_operators_of_flash_attention_have_true_shapes() -> None:
    """What torch.compile is told of the results."""
    q = torch.empty(2, 5, 4, 64, dtype=torch.bfloat16, device="meta")
    k = torch.empty(2, 5, 2, 64, dtype=torch.bfloat16, device="meta")
    out, lse = flash4.flash_attention_4(q, k, k, 0.1)
    assert out.shape == q.shape
    assert lse.shape == (2, 4, 5)
    assert lse.dtype == torch.float32
    grads = flash4.flash_attention_4_backward(q, k, k, out, lse, out, 0.1)
    assert [g.shape for g in grads] == [q.shape, k.shape, k.shape]


@needs_fa4
@pytest.mark.gpu
@pytest.mark.parametrize("K", [32, 64, 128])
@pytest.mark.parametrize(("T", "H", "G"), [(1, 2, 2), (77, 4, 2), (300, 3, 1), (256, 2, 2)])
def test_flash_attention_is_as_exact_as_plain(T: int, H: int, G: int, K: int) -> None:
    shapes = [(2, T, H, K), (2, T, G, K), (2, T, G, K)]
    inputs = draw(shapes, torch.bfloat16, "cuda")

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        backend: AttentionBackend = "math" if q.dtype == torch.float64 else "flash"
        return choose_attention(backend, q.device)(q, k, v, None, True, K**-0.5)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return choose_attention("fa4", q.device)(q, k, v, None, True, K**-0.5)

    assert_as_exact_as_plain(ours, plain, inputs, roundings=2)


@needs_fa4
@pytest.mark.gpu
def test_flash_attention_takes_views_of_a_packed_projection() -> None:
    packed = torch.randn(2, 200, 12, 64, device="cuda", dtype=torch.bfloat16)
    q, k, v = packed.split(4, dim=2)
    grad = torch.randn(2, 200, 4, 64, device="cuda", dtype=torch.bfloat16)

    def run(*qkv: Tensor) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in qkv]
        out = flash4.flash_attention_4(*leaves, 0.125)[0]
        return [out, *torch.autograd.grad(out, leaves, grad)]

    for of_view, of_copy in zip(run(q, k, v), run(*(x.clone() for x in (q, k, v))), strict=True):
        torch.testing.assert_close(of_view, of_copy)


@needs_fa4
@pytest.mark.gpu
def test_training_takes_it_and_generation_does_not() -> None:
    q = torch.randn(1, 1024, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    fastest = choose_attention("auto", q.device)
    assert isinstance(fastest, attention._Fastest)

    def taken(q: Tensor, mask: Tensor | None = None, causal: bool = True) -> bool:
        return fastest.takes_flash4(q, q, mask, causal)

    assert taken(q) == (torch.cuda.get_device_capability() == (9, 0))
    assert not taken(q[:, :64])  # where it was not measured
    assert not taken(q.detach())
    assert not taken(q.float())
    assert not taken(q, causal=False)
    torch.use_deterministic_algorithms(True)
    try:
        assert not taken(q)
    finally:
        torch.use_deterministic_algorithms(False)
    mask = torch.ones(1, 1, 1024, 1024, dtype=torch.bool, device="cuda")
    assert not taken(q, mask)
    with pytest.raises(UserError, match="fa4 computes bfloat16"):
        choose_attention("fa4", q.device)(q, q, q, mask, True, 1.0)
