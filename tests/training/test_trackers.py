"""Curves for other tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.runs.run_dir import RunDir
from spherelm.training.loop import train
from tests.training.conftest import tiny


def test_tensorboard_has_every_step_and_a_curve_for_each_layer(
    tmp_path: Path, dataset: TokenDataset
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(override(tiny("ngpt"), {"train.tensorboard": True}), dataset, tmp_path)
    events = accumulator.EventAccumulator(str(RunDir(tmp_path).tensorboard)).Reload()
    assert [e.step for e in events.Scalars("loss")] == list(range(1, 13))
    assert [e.step for e in events.Scalars("val_loss")] == [4, 8, 12]
    assert {"alpha_attn/layer_0", "alpha_attn/layer_1"} <= set(events.Tags()["scalars"])


@pytest.mark.slow
def test_weights_and_biases_offline(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    train(override(tiny("ngpt"), {"train.wandb_project": "test"}), dataset, tmp_path / "run")
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*-run/*.wandb"))
