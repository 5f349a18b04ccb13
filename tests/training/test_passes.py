"""When a pass is captured, and what is said where that fails; what graphs compute: test_cuda."""

from __future__ import annotations

import pytest
import torch

from spherelm import ModelConfig, Transformer
from spherelm.data.loader import Batch
from spherelm.errors import UserError
from spherelm.training import passes as module
from spherelm.training.passes import WARM_UPS, Passes


def passes(graphs: bool = True) -> Passes:
    config = ModelConfig(vocab_size=17, d_model=16, n_layers=1, n_heads=2, context=8)
    return Passes(Transformer(config), "fp32", torch.device("cpu"), graphs)


def batch(documents: bool = False) -> Batch:
    tokens = torch.randint(17, (2, 8))
    return Batch(tokens, tokens.roll(-1, 1), torch.zeros_like(tokens) if documents else None)


@pytest.fixture
def no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that captures nothing, and says so in three lines."""

    def refuses(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: operation not permitted\nCompile with X\nfor Y")

    monkeypatch.setattr(module.torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(module.torch.cuda, "graph", refuses)


@pytest.mark.usefixtures("no_capture")
def test_a_pass_that_cannot_be_captured_names_the_way_out() -> None:
    run = passes()
    for _ in range(WARM_UPS):
        run(batch(), 16, first=True)
    with pytest.raises(UserError, match=r"not permitted\); set train.cuda_graphs = false \(--tr"):
        run(batch(), 16, first=True)


@pytest.mark.usefixtures("no_capture")
def test_what_is_never_captured() -> None:
    for run, part in ((passes(graphs=False), batch()), (passes(), batch(documents=True))):
        for _ in range(WARM_UPS + 2):
            run(part, 16, first=True)
    run = passes()
    for _ in range(WARM_UPS + 2):  # later parts, whose first one was not captured
        run(batch(), 32, first=False)


def test_parts_add_up() -> None:
    whole, parts = passes(), passes()
    parts.model.load_state_dict(whole.model.state_dict())
    b = batch()
    loss = whole(b, 16, first=True)
    halves = [Batch(b.tokens[i : i + 1], b.targets[i : i + 1], None) for i in range(2)]
    total = sum(parts(half, 16, first=i == 0) for i, half in enumerate(halves))
    torch.testing.assert_close(total, loss)
    for p, q in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
