"""Attention between sequences and under every mask, against explicit loops in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from spherelm import ModelConfig
from spherelm.errors import UserError
from spherelm.model.attend import CAUSAL, FULL, Mask, among, within
from spherelm.model.attention import Attention
from spherelm.model.rope import rope_table

B, T, S = 2, 4, 6
DOCUMENTS = torch.tensor([[0, 0, 1, 1], [5, 5, 5, 6]])
SOURCE_DOCUMENTS = torch.tensor([[0, 1, 1, 1, 0, 2], [6, 6, 5, 5, 5, 5]])
PADDING = torch.tensor([[True, True, True, False, False, False], [True] * 6])


def attention(arch: str, **fields: object) -> Attention:
    config = ModelConfig(arch=arch, d_model=12, n_heads=2, n_kv_heads=1, d_mlp=8, **fields)  # type: ignore[arg-type]
    torch.manual_seed(3)
    part = Attention(config).double()
    for name, parameter in part.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "s_qk" in name else 0.0, 0.5)
    return part


@torch.no_grad()
def by_hand(
    part: Attention, h: Tensor, source: Tensor, sees: Tensor, ropes: list[Tensor | None]
) -> Tensor:
    """One query, one head, one key after another.  sees: (B, T, S)"""
    c = part.config
    K, out = c.d_k, torch.zeros_like(h)

    def head(x: Tensor, W: Tensor, index: int, rope: Tensor | None, t: int) -> Tensor:
        q = [float(x @ W[index * K + i]) for i in range(K)]
        if rope is not None:
            for i in range(K // 2):
                cos, sin = float(rope[0, t, i]), float(rope[1, t, i])
                first, second = q[i], q[i + K // 2]
                q[i], q[i + K // 2] = first * cos - second * sin, second * cos + first * sin
        if part.s_qk is not None:
            length = math.sqrt(sum(x * x for x in q)) if c.qk_norm else 1.0
            s = part.s_qk().view(c.kv_heads, K)[0]
            q = [x / length * float(s[i]) for i, x in enumerate(q)]
        return torch.tensor(q, dtype=torch.float64)

    for b in range(h.shape[0]):
        for t in range(h.shape[1]):
            for n in range(c.n_heads):
                allowed = [s for s in range(source.shape[1]) if sees[b, t, s]]
                if not allowed:
                    continue
                q = head(h[b, t], part.W_q, n, ropes[0], t)
                keys = [head(source[b, s], part.W_k, 0, ropes[1], s) for s in allowed]
                weights = torch.stack([q @ k for k in keys]).mul(c.softmax_scale).softmax(0)
                for weight, s in zip(weights, allowed, strict=True):
                    value = part.W_v[:K] @ source[b, s]
                    out[b, t] += weight * (value @ part.W_o[n * K : (n + 1) * K])
    return out


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.bool)


MASKS: dict[str, tuple[Mask, Tensor]] = {
    "full": (FULL, ones(B, T, S)),
    "causal": (CAUSAL, ones(B, T, S).tril()),
    "documents": (
        within(DOCUMENTS, SOURCE_DOCUMENTS),
        DOCUMENTS[:, :, None] == SOURCE_DOCUMENTS[:, None],
    ),
    "causal documents": (
        within(DOCUMENTS, SOURCE_DOCUMENTS, causal=True),
        (DOCUMENTS[:, :, None] == SOURCE_DOCUMENTS[:, None]).tril(),
    ),
    "padding": (among(PADDING, queries=T), PADDING[:, None].expand(B, T, S)),
    "causal padding": (
        among(PADDING, queries=T, causal=True),
        PADDING[:, None].expand(B, T, S).tril(),
    ),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("rope", [False, True])
@pytest.mark.parametrize(
    ("arch", "fields"), [("gpt", {}), ("ngpt", {}), ("ngpt", {"qk_norm": False})]
)
def test_queries_of_one_sequence_read_another(
    arch: str, fields: dict[str, object], rope: bool, mask: str
) -> None:
    part = attention(arch, **fields)
    h, source = torch.randn(B, T, 12).double(), torch.randn(B, S, 12).double()
    table = rope_table(9, part.config.d_k, 100.0, dtype=torch.float64)
    ropes = [table[:, :T], table[:, 3 : 3 + S]] if rope else [None, None]
    attend, sees = MASKS[mask]
    ours = part.cross(h, source, attend, *ropes)
    torch.testing.assert_close(ours, by_hand(part, h, source, sees, ropes), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_sequence_read_by_itself_is_self_attention(arch: str) -> None:
    part = attention(arch)
    h = torch.randn(B, T, 12).double()
    table = rope_table(T, part.config.d_k, 100.0, dtype=torch.float64)
    for attend in (CAUSAL, FULL, within(DOCUMENTS)):
        torch.testing.assert_close(
            part(h, table, attend), part.cross(h, h, attend, table, table), rtol=1e-12, atol=1e-12
        )


def test_a_query_that_sees_nothing_reads_zeros() -> None:
    """And gradients stay finite: an empty row of the softmax is a classic source of NaN."""
    part = attention("ngpt")
    h = torch.randn(1, 3, 12).double().requires_grad_()
    source = torch.randn(1, 4, 12).double().requires_grad_()
    out = part.cross(h, source, among(torch.zeros(1, 4, dtype=torch.bool), queries=3))
    out.sum().backward()
    assert not bool(out.any())
    assert h.grad is not None
    assert bool(h.grad.isfinite().all())


def test_gradients_between_sequences() -> None:
    part = attention("ngpt")
    h = torch.randn(1, 2, 12).double().requires_grad_()
    source = torch.randn(1, 3, 12).double().requires_grad_()
    mask = among(torch.tensor([[True, True, False]]), queries=2)
    assert torch.autograd.gradcheck(lambda h, s: part.cross(h, s, mask), (h, source))


def test_padding_must_say_what_counts() -> None:
    with pytest.raises(UserError, match="padding must be a"):
        among(torch.ones(2, 3))


@pytest.mark.parametrize("allowed", [torch.ones(2, 1, 4, 4), torch.ones(2, 4, 4).bool()])
def test_a_mask_must_say_where_a_query_may_look(allowed: Tensor) -> None:
    """Numbers were added to the scores, and each row of a batch was the mask of a head."""
    with pytest.raises(UserError, match=r"\(batch, 1, time, time\) of booleans"):
        Mask(allowed=allowed)
