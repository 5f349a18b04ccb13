"""Curves for other tools."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.runs.run_dir import RunDir
from spherelm.training.loop import train
from spherelm.training.report import recorder, trackers
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


@pytest.mark.parametrize("saved", [0, 2])
def test_tensorboard_forgets_what_came_after_the_checkpoint(saved: int, tmp_path: Path) -> None:
    """Also where a run was stopped before its first one."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for start, loss in ((0, 1.0), (saved, 2.0)):
        tracker = trackers.TensorBoard(tmp_path, start)
        for step in range(start + 1, 4):
            tracker.log({"step": step, "loss": loss})
        tracker.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    expected = [(step, 1.0 if step <= saved else 2.0) for step in (1, 2, 3)]
    assert [(e.step, e.value) for e in events.Scalars("loss")] == expected


def test_events_that_cannot_be_written_are_told_once_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard's thread ends with the system's error, which has no name and was a traceback."""
    pytest.importorskip("tensorboard")
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    folder = tmp_path / "events"
    tracker = trackers.TensorBoard(folder, 0)
    folder.rename(tmp_path / "gone")  # at once: its thread may be writing there

    def log_more_than_its_queue_holds() -> None:
        for step in range(1, 10**6):
            tracker.log({"step": step, "loss": 1.0})

    with pytest.raises(UserError, match=f"cannot write {re.escape(str(folder))}: "):
        log_more_than_its_queue_holds()
    with contextlib.suppress(UserError):  # again, where something is left to be written
        tracker.close()
    assert not told
    assert threading.excepthook == told.append


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> list[threading.ExceptHookArgs]:
    """What a hook is told that was there before any writer."""
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    return told


def test_threads_get_their_hook_back(tmp_path: Path, hook: list[threading.ExceptHookArgs]) -> None:
    """In whatever order writers close, and where one could not even begin."""
    pytest.importorskip("tensorboard")
    before = threading.excepthook
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/events: Not a directory"):
        trackers.TensorBoard(tmp_path / "file" / "events", 0)
    assert threading.excepthook is before
    first, second = (trackers.TensorBoard(tmp_path / name, 0) for name in "ab")
    first.close()
    second.close()
    assert threading.excepthook is before
    third = trackers.TensorBoard(tmp_path / "c", 0)
    threading.excepthook = others = lambda ended: None
    third.close()
    third.close()
    assert threading.excepthook is others


def test_how_other_threads_end_is_passed_on(
    tmp_path: Path, hook: list[threading.ExceptHookArgs]
) -> None:
    """Also with an error of the system, as a full disk is one."""
    pytest.importorskip("tensorboard")
    tracker = trackers.TensorBoard(tmp_path, 0)
    reading = threading.Thread(target=(tmp_path / "nowhere").read_text)
    reading.start()
    reading.join()
    tracker.close()
    assert [ended.thread for ended in hook] == [reading]


def test_a_tracker_that_cannot_begin_closes_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: list[threading.ExceptHookArgs]
) -> None:
    pytest.importorskip("tensorboard")
    before = threading.excepthook

    def init(**_: Any) -> None:
        raise RuntimeError("no such project")

    fake = SimpleNamespace(init=init, errors=SimpleNamespace(Error=RuntimeError))
    monkeypatch.setattr(trackers, "_wandb", lambda: fake)
    run = override(tiny("gpt"), {"train.wandb_project": "test", "train.tensorboard": True})
    with pytest.raises(UserError, match="refused the run: no such project"):
        trackers.open_trackers(run, tmp_path / "tensorboard", 0)
    assert threading.excepthook is before


def test_a_run_on_weights_and_biases_is_one_run_of_ours(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other folders of the same name are others, and so is one that was started over."""
    begun: list[str] = []

    def init(*, id: str, **_: Any) -> SimpleNamespace:
        begun.append(id)
        return SimpleNamespace(log=lambda line, step: None, finish=lambda: None)

    fake = SimpleNamespace(init=init, errors=SimpleNamespace(Error=RuntimeError))
    monkeypatch.setattr(trackers, "_wandb", lambda: fake)
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = override(tiny("gpt"), {"train.wandb_project": "test", "train.steps": 2})
    more = override(run, {"train.steps": 3})
    train(run, dataset, tmp_path / "one" / "run")
    train(more, dataset, tmp_path / "one" / "run", resume="auto")
    train(run, dataset, tmp_path / "two" / "run")
    train(run, dataset, tmp_path / "one" / "run", force=True)
    assert begun[0] == begun[1]
    assert len(set(begun)) == 3
    assert all(name.startswith("run-") for name in begun)


def test_all_are_closed_also_where_one_cannot_be(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of Weights & Biases stayed open where TensorBoard's events could not be written."""
    closed: list[str] = []

    class Tracker:
        def __init__(self, name: str) -> None:
            self.name = name

        def log(self, record: Any) -> None: ...

        def close(self) -> None:
            closed.append(self.name)
            raise UserError(f"cannot write {self.name}")

    two = [Tracker("first"), Tracker("second")]
    monkeypatch.setattr(recorder, "open_trackers", lambda *_: two)
    with pytest.raises(UserError, match="cannot write"):
        train(tiny("gpt"), dataset, tmp_path / "run")
    assert sorted(closed) == ["first", "second"]


@pytest.mark.slow
def test_weights_and_biases_offline(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    train(override(tiny("ngpt"), {"train.wandb_project": "test"}), dataset, tmp_path / "run")
    own = json.loads((tmp_path / "run" / "env.json").read_text())["id"]
    assert list((tmp_path / "run" / "wandb").glob(f"offline-run-*-run-{own}/*.wandb"))
