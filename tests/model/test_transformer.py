"""The model as a whole: what may change a logit, what counts in the loss, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spherelm import ModelConfig, Transformer
from spherelm.errors import UserError
from spherelm.model.config import ScaleConfig
from spherelm.model.transformer import IGNORE_INDEX
from tests.model.tiny import (
    ARCHS,
    VARIANTS,
    perturbed,
    random_tokens,
    small_configs,
    tiny_config,
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_later_token_never_changes_an_earlier_logit(variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    model, tokens = perturbed(config), random_tokens(config)
    before = model(tokens)
    for position in range(config.context):
        changed = tokens.clone()
        changed[:, position] = (changed[:, position] + 1) % config.vocab_size
        after = model(changed)
        assert torch.equal(after[:, :position], before[:, :position])
        for later in range(position, config.context):
            assert not torch.equal(after[:, later], before[:, later])


@given(config=small_configs(), batch=st.integers(1, 5))
def test_a_sequence_is_alone_in_its_batch(config: ModelConfig, batch: int) -> None:
    """A batch of any size gives each sequence the logits it has by itself."""
    model, tokens = perturbed(config), random_tokens(config, batch)
    together = model(tokens)
    assert together.shape == (batch, config.context, config.vocab_size)
    for row, logits in zip(tokens, together, strict=True):
        assert torch.allclose(model(row[None])[0], logits, atol=1e-13)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_token_of_another_document_never_changes_a_logit(arch: str) -> None:
    config = tiny_config(arch=arch)
    model, tokens = perturbed(config), random_tokens(config)
    documents = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1]])
    before = model(tokens, documents)
    for position in range(config.context):
        changed = tokens.clone()
        changed[:, position] = (changed[:, position] + 1) % config.vocab_size
        same = (model(changed, documents) == before).all(dim=-1)  # (B, T)
        sees = documents == documents[:, position, None]
        sees[:, :position] = False
        assert torch.equal(same, ~sees)


@pytest.mark.parametrize("fields", [{"arch": "gpt"}, {"s_qk": ScaleConfig(mode="scalar")}])
def test_documents_in_one_sequence_are_sequences_of_their_own(fields: dict[str, Any]) -> None:
    """RoPE knows distances only, so that a document need not start at position 0.

    In an nGPT only while the two factors of s_qk on a pair of coordinates are equal.
    """
    config = tiny_config(**fields)
    model, tokens = perturbed(config), random_tokens(config)
    documents = torch.tensor([[5, 5, 5, 9, 9, 9, 9]] * 2)
    together = model(tokens, documents)
    assert torch.allclose(together[:, :3], model(tokens[:, :3]), atol=1e-13)
    assert torch.allclose(together[:, 3:], model(tokens[:, 3:]), atol=1e-13)
    one = torch.zeros_like(documents)
    assert torch.allclose(model(tokens, one), model(tokens), atol=1e-13)


@pytest.mark.parametrize("arch", ARCHS)
def test_loss_is_the_cross_entropy_of_the_logits(arch: str) -> None:
    config = tiny_config(arch=arch)
    model, tokens = perturbed(config), random_tokens(config)
    targets = random_tokens(config)
    targets[0, 2:5] = IGNORE_INDEX
    probabilities = torch.log_softmax(model(tokens), dim=-1)
    counted = targets != IGNORE_INDEX
    terms = -probabilities[counted].gather(1, targets[counted][:, None])
    assert torch.allclose(model.loss(tokens, targets), terms.mean(), atol=1e-14)
    total = model.loss(tokens, targets, reduction="sum")
    assert torch.allclose(total, terms.sum(), atol=1e-13)


@pytest.mark.parametrize("reduction", ["none", "Sum", None])
def test_another_reduction_is_refused(reduction: Any) -> None:
    """It was a mean without a word, also for who asked for the loss of each token."""
    model, tokens = Transformer(tiny_config()), random_tokens(tiny_config())
    with pytest.raises(UserError, match="reduction must be one of mean, sum, not"):
        model.loss(tokens, tokens, reduction=reduction)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_batch_without_targets_costs_nothing(arch: str) -> None:
    config = tiny_config(arch=arch)
    model, tokens = perturbed(config), random_tokens(config)
    loss = model.loss(tokens, torch.full_like(tokens, IGNORE_INDEX))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(not p.grad.any() for p in model.parameters())


def test_a_new_ngpt_knows_nothing() -> None:
    """Logits within ±1 at the start: the loss is that of a guess, log V, give or take a little."""
    config = tiny_config(vocab_size=1000, d_model=64)
    model, tokens = Transformer(config), random_tokens(config, batch=8)
    loss = float(model.loss(tokens, tokens.roll(-1, 1)).detach())
    assert loss == pytest.approx(math.log(1000), abs=0.1)


@given(config=small_configs(), batch=st.integers(1, 3))
def test_bfloat16_stays_close_to_float32(config: ModelConfig, batch: int) -> None:
    """Some dozen roundings of up to 2^-8 each of values about 1, which partly cancel.

    Measured over 200 examples: 0.033 of the largest logit, and 0.054 once, where the output of a
    block nearly vanishes and Norm magnifies its rounding.
    """
    model, tokens = perturbed(config).float(), random_tokens(config, batch)
    with torch.no_grad():
        expected = model(tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model(tokens)
        stored = model.bfloat16()(tokens)
    size = float(expected.abs().max().clamp_min(1.0))
    for logits in (mixed, stored):
        assert logits.dtype == torch.float32
        assert float((logits - expected).abs().max()) < 0.06 * size


@pytest.mark.parametrize("arch", ARCHS)
def test_autocast_computes_in_bfloat16_and_learns_in_float32(arch: str) -> None:
    config = tiny_config(arch=arch)
    model, tokens = Transformer(config), random_tokens(config)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.hidden(tokens)
        loss = model.loss(tokens, tokens)
    assert hidden.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad.dtype == torch.float32
        assert torch.isfinite(p.grad).all(), name
        assert p.grad.any(), name


@pytest.mark.parametrize("bad", [13, -1, 400])
def test_a_token_outside_the_vocabulary_is_refused(bad: int) -> None:
    config = tiny_config()
    model, tokens = Transformer(config), random_tokens(config)
    wrong = tokens.clone()
    wrong[1, 3] = bad
    with pytest.raises(UserError, match=rf"tokens must be ids from 0 to 12 .* not {bad}"):
        model(wrong)
    with pytest.raises(UserError, match=rf"targets must be ids from 0 to 12 .* not {bad}"):
        model.loss(tokens, wrong)


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 0), (1, 2, 3)])
def test_tokens_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="tokens must be a non-empty"):
        Transformer(tiny_config())(torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_tokens_of_another_dtype_are_refused(dtype: torch.dtype) -> None:
    config = tiny_config()
    model, tokens = Transformer(config), random_tokens(config)
    with pytest.raises(UserError, match=rf"tokens must be ids of dtype torch.long, not {dtype}"):
        model(tokens.to(dtype))
    with pytest.raises(UserError, match=rf"targets must be ids of dtype torch.long, not {dtype}"):
        model.loss(tokens, tokens.to(dtype))


@pytest.mark.parametrize("shape", [(2, 6), (1, 7), (7,)])
def test_targets_and_documents_must_match_the_tokens(shape: tuple[int, ...]) -> None:
    config = tiny_config()
    model, tokens = Transformer(config), random_tokens(config)
    other = torch.zeros(shape, dtype=torch.long)
    with pytest.raises(UserError, match=r"targets must have the shape of tokens \(2, 7\)"):
        model.loss(tokens, other)
    with pytest.raises(UserError, match=r"documents must have the shape of tokens \(2, 7\)"):
        model(tokens, other)


@pytest.mark.parametrize("kept", [[1], [0, 1, 0], []])
def test_a_model_may_lose_blocks_or_have_more(kept: list[int]) -> None:
    """What it computes depends on its blocks, not on the number that its configuration says."""
    model = perturbed(tiny_config())
    tokens = random_tokens(model.config)
    with torch.no_grad():
        h = model.embed(tokens)
        for i in kept:
            h = model.blocks[i](h, model.rope(tokens.shape[1]))
        expected = model.logits(h)
        model.blocks = nn.ModuleList(model.blocks[i] for i in kept)
        assert torch.equal(model(tokens), expected)


@pytest.mark.parametrize("arch", ARCHS)
def test_shapes_and_flops_can_be_had_without_numbers(arch: str) -> None:
    """A model on the meta device runs forward and backward: it has no autocast, which raised."""
    with torch.device("meta"):
        model = Transformer(tiny_config(arch=arch))
        tokens = torch.zeros(2, 7, dtype=torch.long)
    assert model(tokens).shape == (2, 7, 13)
    model.loss(tokens, tokens).backward()
    assert all(p.grad is not None and p.grad.is_meta for p in model.parameters())


def test_tied_embeddings_are_one_parameter() -> None:
    model = Transformer(tiny_config(tie_embeddings=True))
    assert model.E_output is None
    assert "E_output" not in model.state_dict()
    tokens = random_tokens(model.config)
    model.loss(tokens, tokens).backward()
    unused = torch.ones(13, dtype=torch.bool)
    unused[tokens.flatten()] = False
    assert model.E_input.grad[unused].any()  # through the output
