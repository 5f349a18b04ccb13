"""Where a document stands in a row: what depends on it, and positions that restart."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from spherelm import ScaleConfig, Transformer
from spherelm.data.loader import restarting_positions
from spherelm.errors import UserError
from tests.model.tiny import VARIANTS, perturbed, random_tokens, tiny_config

LENGTHS = (3, 1, 5, 2)
ROUNDING = 1e-12  # float64: a few hundred operations


def packed(model: Transformer) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """A row of documents, their numbers, and each of them alone: (1, 11), (1, 11), (1, n) each."""
    alone = [random_tokens(model.config, 1, length) for length in LENGTHS]
    numbers = [torch.full((1, n), i) for i, n in enumerate(LENGTHS)]
    return torch.cat(alone, 1), torch.cat(numbers, 1), alone


def losses(model: Transformer, tokens: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
    """The loss of each token of a row, as its own target: (T,)"""
    logits = model(tokens, **given)
    return torch.nn.functional.cross_entropy(logits[0], tokens[0], reduction="none")


def test_positions_count_from_the_start_of_each_document() -> None:
    documents = torch.tensor([[0, 0, 1, 1, 1, 2], [4, 4, 4, 4, 4, 4], [0, 1, 0, 0, 7, 7]])
    expected = [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 0, 1]]
    assert restarting_positions(documents).tolist() == expected
    assert restarting_positions(documents[:, :1]).tolist() == [[0], [0], [0]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_document_that_restarts_has_the_loss_it_has_alone(variant: str) -> None:
    model = perturbed(tiny_config(**{"context": 11, **VARIANTS[variant]}))
    tokens, documents, alone = packed(model)
    positions = restarting_positions(documents)
    together = losses(model, tokens, documents=documents, position_ids=positions)
    by_document = together.split(LENGTHS)
    for mine, document in zip(by_document, alone, strict=True):
        torch.testing.assert_close(mine, losses(model, document), rtol=0, atol=ROUNDING)
    summed = model.loss(tokens, tokens, documents, reduction="sum", position_ids=positions)
    torch.testing.assert_close(summed, together.sum(), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("fields", "absolute"),
    [
        ({}, True),
        ({"s_qk": ScaleConfig(mode="scalar")}, False),
        ({"arch": "gpt"}, False),
    ],
    ids=["vector s_qk", "scalar s_qk", "gpt"],
)
def test_what_depends_on_absolute_position(fields: dict[str, object], absolute: bool) -> None:
    """Without restarting, the third document of the row differs from itself alone with a vector
    s_qk, whose factors act after the rotation, and with nothing else."""
    model = perturbed(tiny_config(**{"context": 11, **fields}))
    tokens, documents, alone = packed(model)
    together = losses(model, tokens, documents=documents).split(LENGTHS)[2]
    difference = float((together - losses(model, alone[2])).detach().abs().max())
    assert difference > 1e-4 if absolute else difference < ROUNDING


def test_a_fresh_model_depends_on_no_absolute_position() -> None:
    """All factors of s_qk start alike."""
    model = Transformer(tiny_config(context=11)).double()
    tokens, documents, alone = packed(model)
    together = losses(model, tokens, documents=documents).split(LENGTHS)[2]
    torch.testing.assert_close(together, losses(model, alone[2]), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_padding_on_the_left(arch: str) -> None:
    model = perturbed(tiny_config(arch=arch, context=9))
    text = random_tokens(model.config, 1, 5)
    padded = torch.cat((torch.zeros(1, 4, dtype=torch.long), text), 1)
    numbers = (torch.arange(9) >= 4).long()[None]  # 0 for the padding, 1 for the text
    logits = model(padded, numbers, restarting_positions(numbers))[:, 4:]
    torch.testing.assert_close(logits, model(text), rtol=0, atol=ROUNDING)
    assert float((model(padded)[:, 4:] - model(text)).detach().abs().max()) > 1e-4


@pytest.mark.parametrize("variant", ["gpt", "lerp"])
def test_counting_from_0_is_what_happens_without(variant: str) -> None:
    model = perturbed(tiny_config(**VARIANTS[variant])).float()
    tokens = random_tokens(model.config, 3)
    counted = torch.arange(tokens.shape[1]).expand_as(tokens)
    assert torch.equal(model(tokens, position_ids=counted), model(tokens))
    assert not torch.equal(model(tokens, position_ids=counted.flip(1)), model(tokens))


def test_wrong_positions_are_refused_in_one_line() -> None:
    model = Transformer(tiny_config())  # a context of 7
    tokens = random_tokens(model.config, 1, 3)
    for positions, complaint in (
        (torch.tensor([[0, 1, 7]]), r"from 0 to 6 .* not 7; .*extend_context\(8\)"),
        (torch.tensor([[-1, 0, 1]]), "from 0 to 6 .* not -1"),
        (torch.tensor([[0, 1]]), r"position_ids must have the shape of tokens \(1, 3\)"),
        (torch.tensor([[0.0, 1.0, 2.0]]), "dtype torch.long"),
    ):
        with pytest.raises(UserError, match=complaint) as refused:
            model(tokens, position_ids=positions)
        assert "\n" not in str(refused.value)
    assert model(tokens, position_ids=torch.tensor([[0, 1, 6]])).isfinite().all()
    model.extend_context(8)
    assert model(tokens, position_ids=torch.tensor([[0, 1, 7]])).isfinite().all()


def test_a_row_longer_than_the_context_may_hold_short_documents() -> None:
    model = perturbed(dataclasses.replace(tiny_config(), context=5))
    tokens, documents, alone = packed(model)
    positions = restarting_positions(documents)
    together = losses(model, tokens, documents=documents, position_ids=positions).split(LENGTHS)
    torch.testing.assert_close(together[2], losses(model, alone[2]), rtol=0, atol=ROUNDING)
