"""GPT with QK-norm: RMSNorm with a learned gain on q and k, per head, after the rotation."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm import ModelConfig, Transformer
from spherelm.config_io import override
from spherelm.data.open import open_dataset
from spherelm.errors import UserError
from spherelm.generation.cached import decode, new_cache, prefill
from spherelm.generation.fused import applies
from spherelm.hf.export import export_to_hf
from spherelm.model.attention import Attention
from spherelm.model.flops import count_parameters
from spherelm.model.fold import FoldedTransformer
from spherelm.model.rope import rope_table
from spherelm.ops.reference import rotate
from spherelm.optim.adamw import parameter_groups
from spherelm.training.loop import train
from tests.corpus import prepare_corpus
from tests.model.tiny import perturbed, random_tokens, tiny_config
from tests.training.conftest import tiny

SHAPES = [{}, {"n_kv_heads": 2}]


def by_hand(attention: Attention, h: Tensor, config: ModelConfig) -> Tensor:
    """softmax(RMSNorm(q)·g (RMSNorm(k)·g)ᵀ / sqrt(d_k)) v W_o, as other codebases write it."""
    T, K = h.shape[1], config.d_k
    table = rope_table(T, K, config.rope_base, h.device, torch.float64)
    q, k, v = (
        F.linear(h, W).unflatten(-1, (-1, K)) for W in (attention.W_q, attention.W_k, attention.W_v)
    )
    assert attention.s_qk is not None
    gain = attention.s_qk.stored.view(-1, K)  # (G, K)
    shared = config.n_heads // config.kv_heads
    q = F.rms_norm(rotate(q, table), (K,), eps=0.0) * gain.repeat_interleave(shared, dim=0)
    k = F.rms_norm(rotate(k, table), (K,), eps=0.0) * gain
    k, v = (x.repeat_interleave(shared, dim=2) for x in (k, v))
    scores = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(K)
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
    return torch.einsum("bhts,bshk->bthk", scores.softmax(-1), v).flatten(-2) @ attention.W_o


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_those_of_rms_norm_with_a_gain(shape: dict[str, int]) -> None:
    config = tiny_config(arch="gpt", gpt_qk_norm=True, **shape)
    model = perturbed(config)
    h = torch.randn(2, config.context, config.d_model, dtype=torch.float64)
    attention = model.blocks[0].attention
    rope = rope_table(config.context, config.d_k, config.rope_base, h.device, torch.float64)
    # Two orders of the same float64 sums.
    torch.testing.assert_close(
        attention(h, rope), by_hand(attention, h, config), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_decoding_computes_the_same(shape: dict[str, int]) -> None:
    model = perturbed(tiny_config(arch="gpt", gpt_qk_norm=True, **shape))
    tokens = random_tokens(model.config)
    folded, expected = FoldedTransformer(model), model(tokens)
    close = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(
        prefill(folded, tokens, new_cache(folded, *tokens.shape)), expected, **close
    )
    cache = new_cache(folded, *tokens.shape)
    for t in range(tokens.shape[1]):
        positions = torch.full((tokens.shape[0],), t)
        logits = decode(folded, tokens[:, t], positions, cache, span=t + 1)
        torch.testing.assert_close(logits, expected[:, t], **close)


@pytest.mark.parametrize("normed", [False, True])
def test_fused_decoding_leaves_it_alone(normed: bool) -> None:
    """Its kernels know a GPT without QK-norm alone."""
    config = tiny_config(arch="gpt", gpt_qk_norm=normed)
    model = SimpleNamespace(config=config, ops=SimpleNamespace(kernels=True), layers=[])
    assert applies(model, batch=1) is not normed  # type: ignore[arg-type]


def test_it_is_a_gpt_with_gains_that_start_at_one() -> None:
    plain, normed = (
        Transformer(tiny_config(arch="gpt", gpt_qk_norm=on, n_kv_heads=2)) for on in (False, True)
    )
    gains = [p for name, p in normed.named_parameters() if name.endswith("s_qk.stored")]
    assert len(gains) == 2
    assert all(torch.equal(gain, torch.ones(8)) for gain in gains)
    assert not normed.spherical
    n_plain, n_normed = (sum(p.numel() for p in m.parameters()) for m in (plain, normed))
    assert n_normed == n_plain + 2 * 8 == count_parameters(normed.config).total
    decayed, free = parameter_groups(normed, weight_decay=0.1)
    assert {id(gain) for gain in gains} <= {id(p) for p in free["params"]}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)


def test_the_field_is_gpts_alone() -> None:
    with pytest.raises(UserError, match=r"model\.gpt_qk_norm is for GPT alone"):
        tiny_config(gpt_qk_norm=True)
    with pytest.raises(UserError, match="gpt_qk_norm must be true or false"):
        tiny_config(arch="gpt", gpt_qk_norm=1)


def test_it_is_trained_but_not_exported(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    dataset = open_dataset(prepare_corpus(tmp_path / "corpus"))
    run = override(tiny("gpt"), {"model.gpt_qk_norm": True, "train.steps": 1})
    train(run, dataset, tmp_path / "run")
    with pytest.raises(UserError, match="cannot be exported: Hugging Face's Llama"):
        export_to_hf(tmp_path / "run", tmp_path / "export")
    assert not (tmp_path / "export").exists()
