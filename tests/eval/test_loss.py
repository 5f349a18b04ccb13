"""The loss of fixed sequences: what counts, and that nothing is changed by looking."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from spherelm.data.loader import Batch
from spherelm.eval.loss import Evaluation, evaluate
from spherelm.model.transformer import IGNORE_INDEX
from tests.saved_runs import byte_model

SIZES = np.arange(257) % 3.0
"""Bytes that each token stands for: 0, 1 or 2."""


def batches() -> list[Batch]:
    """Two batches of different sizes, with targets that do not count."""
    tokens = torch.randint(257, (5, 9))
    targets = tokens.roll(-1, 1)
    targets[0, :4] = targets[3] = IGNORE_INDEX
    return [Batch(tokens[:2], targets[:2], None), Batch(tokens[2:], targets[2:], None)]


def test_loss_tokens_and_bytes_by_hand() -> None:
    model, given = byte_model(), batches()
    nats, bytes_, count = 0.0, 0.0, 0
    for batch in given:
        logp = model(batch.tokens).log_softmax(-1).detach()
        for row, targets in zip(logp, batch.targets, strict=True):
            for position, target in enumerate(targets.tolist()):
                if target != IGNORE_INDEX:
                    nats -= float(row[position, target])
                    bytes_ += SIZES[target]
                    count += 1
    measured = evaluate(model, given, SIZES)
    assert measured.tokens == count == 45 - 4 - 9
    assert measured.text_bytes == bytes_
    assert measured.loss == pytest.approx(nats / count, rel=1e-5)
    assert measured.bits_per_byte == pytest.approx(nats / math.log(2) / bytes_, rel=1e-5)
    assert evaluate(model, given).bits_per_byte is None


def test_ranks_add_up_before_they_divide() -> None:
    model, (first, second) = byte_model(), batches()
    whole = evaluate(model, [first, second], SIZES)
    share: list[list[float]] = []
    evaluate(model, [first], SIZES, lambda mine: share.append(mine) or mine)  # type: ignore[func-returns-value]
    together = evaluate(
        model, [second], SIZES, lambda mine: [a + b for a, b in zip(mine, share[0], strict=True)]
    )
    assert together.tokens == whole.tokens
    assert together.loss == pytest.approx(whole.loss, rel=1e-6)
    assert together.bits_per_byte == pytest.approx(whole.bits_per_byte, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_its_mode_and_without_gradients(training: bool) -> None:
    model = byte_model().train(training)
    evaluate(model, batches())
    assert model.training is training
    assert all(module.training is training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_a_loss_too_large_for_a_perplexity() -> None:
    assert Evaluation(2.0, 1).perplexity == pytest.approx(math.e**2)
    assert Evaluation(800.0, 1).perplexity == math.inf
