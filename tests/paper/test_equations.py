"""Every equation: the model against the implementation by hand, in float64.

Tolerance: both sides round each of some hundred operations to 2^-53, so they agree to about 1e-14;
SLERP's arccos by hand loses up to four digits of that where h and its target nearly coincide. A
wrong equation shows from 1e-3 on.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spherelm import ModelConfig, Transformer
from spherelm.model.transformer import IGNORE_INDEX
from tests.model.tiny import VARIANTS, perturbed, random_tokens, small_configs, tiny_config
from tests.paper import reference

TOLERANCE = 1e-10


def by_hand(model: Transformer, tokens: torch.Tensor, documents: Any = None) -> np.ndarray:
    """The logits of the implementation by hand: (B, T, V)."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    of_row = itertools.repeat(None) if documents is None else documents.tolist()
    return np.array(
        [
            reference.logits(weights, model.config, row, row_documents)
            for row, row_documents in zip(tokens.tolist(), of_row, strict=False)
        ]
    )


def assert_same_function(model: Transformer, tokens: torch.Tensor, documents: Any = None) -> None:
    expected = by_hand(model, tokens, documents)
    with torch.no_grad():
        logits = model(tokens, documents).numpy()
    assert np.abs(logits - expected).max() < TOLERANCE

    targets = tokens.roll(-1, dims=1)
    targets[:, -1] = IGNORE_INDEX
    targets[0, 0] = 0  # so that one target counts even where T = 1
    terms = [
        term
        for z, row in zip(expected, targets.tolist(), strict=True)
        for term in reference.losses(z, row)
    ]
    with torch.no_grad():
        mean = float(model.loss(tokens, targets, documents))
        total = float(model.loss(tokens, targets, documents, reduction="sum"))
    assert mean == pytest.approx(sum(terms) / len(terms), abs=TOLERANCE)
    assert total == pytest.approx(sum(terms), abs=TOLERANCE * len(terms))


@pytest.mark.parametrize("variant", VARIANTS)
def test_model_is_the_paper(variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    assert_same_function(perturbed(config), random_tokens(config))


@pytest.mark.parametrize("variant", ["gpt", "lerp", "grouped heads"])
def test_attention_within_documents_is_the_paper(variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    documents = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [3, 4, 4, 4, 4, 4, 4]])
    assert_same_function(perturbed(config), random_tokens(config), documents)


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_new_model_is_the_paper(arch: str) -> None:
    """At its starting values, too: what `init` and `scale` leave must be the paper's numbers."""
    config = tiny_config(arch=arch)
    assert_same_function(Transformer(config).double(), random_tokens(config))


@given(config=small_configs(), batch=st.integers(1, 3), data=st.data())
@settings(max_examples=60)
def test_any_shape_is_the_paper(config: ModelConfig, batch: int, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, config.context))
    assert_same_function(perturbed(config), random_tokens(config, batch, length))
