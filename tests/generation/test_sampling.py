"""Sampling: each filter against a hand-computed example, the draw against its probabilities."""

from __future__ import annotations

import pytest
import torch

from spherelm.errors import UserError
from spherelm.generation.sampling import (
    Sampling,
    choose,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalize_repetition,
)

PROBABILITIES = torch.tensor([[0.1, 0.5, 0.05, 0.3, 0.05], [0.2, 0.2, 0.2, 0.2, 0.2]])
LOGITS = PROBABILITIES.log() + 3.0


def kept(logits: torch.Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero().flatten().tolist() for row in logits]


def test_top_k() -> None:
    assert kept(keep_top_k(LOGITS, 2))[0] == [1, 3]
    assert kept(keep_top_k(LOGITS, 99))[0] == [0, 1, 2, 3, 4]


def test_top_p_keeps_the_token_that_crosses_the_threshold() -> None:
    assert kept(keep_top_p(LOGITS, 0.4))[0] == [1]
    assert kept(keep_top_p(LOGITS, 0.6))[0] == [1, 3]
    assert kept(keep_top_p(LOGITS, 0.85))[0] == [0, 1, 3]
    assert kept(keep_top_p(LOGITS, 1.0))[0] == [0, 1, 2, 3, 4]
    assert len(kept(keep_top_p(LOGITS, 0.5))[1]) == 3
    # Probabilities that float32 holds exactly: what sums to p is enough.
    even = torch.zeros(1, 4)
    assert [len(kept(keep_top_p(even, p))[0]) for p in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 3, 4]


def test_min_p() -> None:
    assert kept(keep_min_p(LOGITS, 0.15))[0] == [0, 1, 3]
    assert kept(keep_min_p(LOGITS, 0.15))[1] == [0, 1, 2, 3, 4]
    assert kept(keep_min_p(torch.zeros(1, 4), 1.0))[0] == [0, 1, 2, 3]  # as likely is enough


def test_repetition_penalty() -> None:
    logits = torch.tensor([[2.0, -2.0, 1.0]])
    seen = torch.tensor([[True, True, False]])
    assert penalize_repetition(logits, seen, 2.0).tolist() == [[1.0, -4.0, 1.0]]


def test_draw_follows_the_probabilities() -> None:
    n = 20_000
    generator = torch.Generator().manual_seed(0)
    tokens = draw(LOGITS[:1].expand(n, -1), generator)
    frequencies = torch.bincount(tokens, minlength=5) / n
    # Four standard deviations of a frequency of at most 1/2: 4 · sqrt(1/4 / n) = 0.014
    torch.testing.assert_close(frequencies, PROBABILITIES[0], rtol=0, atol=0.014)


def test_a_forbidden_token_is_never_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = keep_top_k(LOGITS[:1], 2).expand(1000, -1)
    assert set(draw(logits, generator).tolist()) == {1, 3}


@pytest.mark.parametrize("temperature", [1e-30, 1e-38, 1e-45, 1e-320])
def test_a_temperature_near_0_is_greedy(temperature: float) -> None:
    """Though logits over it are beyond all floats."""
    settings = Sampling(temperature=temperature, top_k=3, top_p=0.9, min_p=0.1)
    for logits in (LOGITS[:1], LOGITS[:1] - 9.0):
        assert choose(logits, settings, None, torch.Generator().manual_seed(0)).tolist() == [1]


def test_temperature_sharpens() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = LOGITS[:1].expand(2000, -1)
    cold = choose(rows, Sampling(temperature=0.25), None, generator)
    # p^4 renormalized: 0.0625 / (0.0625 + 0.0081 + 0.0001 + ...) = 0.88
    assert abs((cold == 1).float().mean().item() - 0.8826) < 0.03
    assert choose(LOGITS, Sampling(temperature=0), None, generator)[0] == 1


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_p": 0.6}, {1, 3}),
        ({"min_p": 0.15}, {0, 1, 3}),
        # Fourth roots, renormalized: 0.18, 0.27, 0.15, 0.24, 0.15. Temperature comes first.
        ({"temperature": 4.0, "top_p": 0.6}, {0, 1, 3}),
        ({"temperature": 4.0, "min_p": 0.6}, {0, 1, 3}),
        # 0.625 and 0.375 of the two that are left: top-k comes before top-p.
        ({"top_k": 2, "top_p": 0.6}, {1}),
        ({"top_p": 0.85, "min_p": 0.3}, {1, 3}),
        ({"top_k": 3, "min_p": 0.15}, {0, 1, 3}),
    ],
    ids=str,
)
def test_every_setting_takes_part_in_the_choice(
    settings: dict[str, float], tokens: set[int]
) -> None:
    """And in the order of Hugging Face `generate`; the rarest token has a chance of 1 in 10."""
    rows = LOGITS[:1].expand(500, -1)
    drawn = choose(rows, Sampling(**settings), None, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == tokens


def test_what_was_seen_counts_less_also_for_the_most_likely() -> None:
    logits = torch.tensor([[2.0, 1.5, -1.0]])
    seen = torch.tensor([[True, False, False]])
    generator = torch.Generator()
    for penalty, token in ((1.0, 0), (1.2, 0), (2.0, 1)):
        settings = Sampling(temperature=0, repetition_penalty=penalty)
        assert choose(logits, settings, seen, generator).tolist() == [token]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("top_k", 0),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", -0.1),
        ("repetition_penalty", 0),
    ],
)
def test_bad_settings_name_the_field(field: str, value: float) -> None:
    with pytest.raises(UserError, match=field):
        Sampling(**{field: value})
