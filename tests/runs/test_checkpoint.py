"""Checkpoint folders: which are kept, which are chosen, which are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from spherelm import records
from spherelm.config import ParallelConfig
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.runs import checkpoint
from tests.saved_runs import change_state

TENSORS = {"weights": torch.arange(12.0).view(3, 4), "factors": torch.ones(5).bfloat16()}


def save(folder: Path, step: int, val_loss: float | None = None) -> Path:
    alone = Processes(ParallelConfig(), "cpu")
    return checkpoint.Writing(folder, step, TENSORS, {"val_loss": val_loss}, alone).finish()


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = save(tmp_path, 3, val_loss=1.5)
    state = checkpoint.verify(path)
    assert (state["step"], state["val_loss"]) == (3, 1.5)
    into = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    checkpoint.load_tensors(path, into)
    assert all(torch.equal(into[name], TENSORS[name]) for name in TENSORS)


def test_nothing_in_a_checkpoint_is_a_pickle(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    assert {p.suffix for p in path.iterdir()} == {".json", ".safetensors"}


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0), (4, None), (5, 2.5)):
        save(tmp_path, step, loss)
        checkpoint.prune(tmp_path, keep_last=2)
    assert [p.name for p in checkpoint.list_checkpoints(tmp_path)] == ["step_2", "step_4", "step_5"]


def test_numbers_not_names_decide_which_is_newest(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save(tmp_path, step)
    assert checkpoint.latest(tmp_path) == tmp_path / "step_100"


def test_unfinished_folders_are_never_chosen(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".step_2.writing").mkdir()
    (tmp_path / "step_3.old").mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step_1"
    checkpoint.clear_leftovers(tmp_path)
    assert not (tmp_path / ".step_2.writing").exists()


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 1, val_loss=2.0)
    assert checkpoint.verify(save(tmp_path, 1, val_loss=1.0))["val_loss"] == 1.0


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    change_state(path, format=99)
    with pytest.raises(UserError, match="has checkpoint format 99; this version"):
        checkpoint.verify(path)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ([], "it is not a JSON object"),
        (7, "it is not a JSON object"),
        ({}, "it has no 'files'"),
        ({"files": []}, "'files' cannot be \\[\\]"),
        ({"files": {}}, "it says nothing of state.json"),
        ({"files": {"../../victim": {"bytes": 1, "crc32": "0"}}}, "is not the name of a file"),
        ({"files": {"state.json": 3}}, "what it says of state.json cannot be 3"),
        ({"files": {"state.json": {"bytes": "x", "crc32": "0"}}}, "'bytes' cannot be 'x'"),
        ({"files": {"state.json": {"bytes": 1}}}, "it has no 'crc32'"),
        ({"files": {"gone": {"bytes": 1, "crc32": "0"}}}, "gone: it is missing"),
    ],
)
def test_a_manifest_that_cannot_be_ours_is_refused(
    tmp_path: Path, manifest: object, message: str
) -> None:
    path = save(tmp_path, 1)
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(records.Damaged, match=message) as caught:
        checkpoint.verify(path)
    assert "step_1 is damaged: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"step": 2}, "state.json: it is of step 2"),
        ({"step": None}, "'step' cannot be None"),
        ({"val_loss": "low"}, "'val_loss' cannot be 'low'"),
    ],
)
def test_a_state_that_cannot_be_ours_is_refused(
    tmp_path: Path, state: dict[str, object], message: str
) -> None:
    path = save(tmp_path, 1)
    change_state(path, **state)
    with pytest.raises(records.Damaged, match=message):
        checkpoint.verify(path)


def test_a_checkpoint_from_before_there_were_seals_is_read(tmp_path: Path) -> None:
    path = save(tmp_path, 3, val_loss=1.5)
    change_state(path, sealed=False)
    assert records.SEAL not in (path / "manifest.json").read_text()
    assert checkpoint.verify(path)["step"] == 3


def test_a_file_of_another_size_is_named_with_its_size(tmp_path: Path) -> None:
    """Found before a checksum of gigabytes is computed."""
    path = save(tmp_path, 3)
    (shard,) = path.glob("*.safetensors")
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(UserError, match=rf"safetensors: it has {size - 5} bytes, not {size}"):
        checkpoint.verify(path)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_bit_that_has_turned_is_found(tmp_path: Path, place: str) -> None:
    """In the names and shapes, or in the numbers themselves: neither changes the file's size."""
    path = save(tmp_path, 1)
    (file,) = path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[20 if place == "first" else -1] ^= 1
    file.write_bytes(content)
    with pytest.raises(records.Damaged, match=rf"{file.name}: its checksum is not that of"):
        checkpoint.verify(path)


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"could not write checkpoint.*Not a directory") as caught:
        save(tmp_path / "file", 1)
    assert "\n" not in str(caught.value)


def test_in_the_background_what_is_written_is_what_was(tmp_path: Path) -> None:
    """The weights change while the checkpoint is written; it holds those of its step."""
    alone = Processes(ParallelConfig(), "cpu")
    moving = {"weights": torch.zeros(1 << 20)}
    writing = checkpoint.Writing(tmp_path, 1, moving, {"val_loss": None}, alone, background=True)
    moving["weights"] += 1
    assert checkpoint.latest(tmp_path) is None
    path = writing.finish()
    into = {"weights": torch.ones(1 << 20)}
    checkpoint.verify(path)
    checkpoint.load_tensors(path, into)
    assert not into["weights"].any()
