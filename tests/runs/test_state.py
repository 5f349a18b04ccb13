"""What must survive a restart: saved and loaded, all of it is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from spherelm.config import ParallelConfig
from spherelm.data.open import open_dataset
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.state import TrainState
from spherelm.training.build import build_state
from tests.corpus import prepare_corpus
from tests.training.conftest import tiny


@pytest.fixture
def alone() -> Processes:
    return Processes(ParallelConfig(), "cpu")


def taken(state: TrainState, steps: int) -> TrainState:
    """The state after some steps, as training takes them."""
    for _ in range(steps):
        batch = next(state.loader)
        state.model.loss(batch.tokens, batch.targets).backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.step += 1
    state.loader.close()
    return state


def test_a_state_goes_on_as_if_it_had_never_been_saved(tmp_path: Path, alone: Processes) -> None:
    run, dataset = tiny("ngpt"), open_dataset(prepare_corpus(tmp_path))
    state = taken(build_state(run, dataset, alone), 3)
    state.val_loss, state.evaluated_at = 2.5, 3
    torch.rand(7)
    path = state.save(tmp_path / "checkpoints", alone).finish()
    drawn, went_on = torch.rand(1), taken(state, 2)

    other = build_state(run, dataset, alone)
    other.load(path, checkpoints.verify(path))
    assert (other.step, other.began, other.val_loss) == (3, 0, 2.5)
    assert torch.equal(torch.rand(1), drawn)
    for (name, a), b in zip(
        went_on.model.state_dict().items(), taken(other, 2).model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    assert other.loader.consumed == went_on.loader.consumed == 5 * run.train.batch_size


def test_a_loss_is_kept_with_the_step_it_was_measured_at(tmp_path: Path, alone: Processes) -> None:
    state = build_state(tiny("gpt"), open_dataset(prepare_corpus(tmp_path)), alone)
    state.val_loss, state.evaluated_at, state.step = 2.5, 3, 4
    assert checkpoints.verify(state.save(tmp_path, alone).finish())["val_loss"] is None


def test_a_generators_state_that_no_generator_has(tmp_path: Path, alone: Processes) -> None:
    state = build_state(tiny("gpt"), open_dataset(prepare_corpus(tmp_path)), alone)
    path = state.save(tmp_path, alone).finish()
    record = {**checkpoints.verify(path), "random": {"cpu": "AAAA"}}
    with pytest.raises(UserError, match=r"state.json is damaged: no generator has such a state"):
        state.load(path, record)
