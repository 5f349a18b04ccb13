"""Both models learn: one hundred steps on a small text."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections import Counter

import pytest
import torch

from spherelm import AdamW, ModelConfig, Transformer, cosine_schedule
from tests.model.tiny import UPDATES

TEXT = inspect.getsource(textwrap).encode()
STEPS = 100


def unigram_entropy(text: bytes) -> float:
    """What a model that only knows how often each byte occurs can reach, in nats."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log(n / len(text)) for n in counts.values())


def final_loss(config: ModelConfig, lr: float, weight_decay: float = 0.0) -> float:
    """The mean loss of the last ten of one hundred steps on random pieces of the text."""
    data = torch.tensor(list(TEXT))
    model = Transformer(config)
    optimizer = AdamW(model, lr=lr, weight_decay=weight_decay)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = cosine_schedule(step, steps=STEPS, peak=lr)
        starts = torch.randint(len(data) - config.context, (16,)).tolist()
        pieces = torch.stack([data[i : i + config.context + 1] for i in starts])
        optimizer.zero_grad()
        loss = model.loss(pieces[:, :-1], pieces[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > math.log(128)  # 256 bytes, nothing known yet
    return sum(losses[-10:]) / 10


SIZES = {"vocab_size": 256, "d_model": 32, "n_layers": 2, "n_heads": 4, "context": 32}


def test_gpt_learns() -> None:
    loss = final_loss(ModelConfig(arch="gpt", **SIZES), lr=1e-2, weight_decay=0.1)
    assert loss < unigram_entropy(TEXT) - 0.4


@pytest.mark.parametrize("update", UPDATES)
def test_ngpt_learns(update: str) -> None:
    loss = final_loss(ModelConfig(update=update, **SIZES), lr=3e-2)
    assert loss < unigram_entropy(TEXT) - 0.4
