"""What a verb knows as its own: exactly what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spherelm.folders.kinds import COMPARE, EXPORT, PREPARE, TRAIN, Kind, stranger
from spherelm.hf.export import export_to_hf
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (TRAIN, "checkpoints/step_12/shard-00001-model-00001-of-00001.safetensors"),
        (TRAIN, "checkpoints/.step_12.writing/state.json"),
        (TRAIN, "checkpoints/.step_12.removing/manifest.json"),
        (TRAIN, ".config.toml.writing"),
        (TRAIN, "tensorboard/events.out.tfevents.17.host.1.0"),
        (TRAIN, "wandb/run-1/files/any.yaml"),
        (TRAIN, "tokenizer/gpt2-vocab.json"),
        (TRAIN, ".spherelm"),
        (COMPARE, "ngpt/checkpoints/step_2/state.json"),
        (COMPARE, "gpt/.spherelm"),
        (PREPARE, "train-00012.tokens"),
    ],
)
def test_its_own_paths(kind: Kind, path: str) -> None:
    assert kind.knows(path.split("/"))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (TRAIN, "notes.txt"),
        (TRAIN, "config.toml.bak"),
        (TRAIN, "checkpoints/best.pt"),
        (TRAIN, "checkpoints/step_12"),  # a file where a folder belongs
        (TRAIN, "checkpoints/step_12x/state.json"),
        (TRAIN, "checkpoints/step_12/state.json/deeper"),
        (TRAIN, "tokenizer/tokens.txt"),
        (TRAIN, "train-00000.tokens"),
        (COMPARE, "config.toml"),
        (COMPARE, "other/config.toml"),
        (EXPORT, "config.toml"),
        (EXPORT, "model-00001-of-00002.safetensors"),
        (PREPARE, "test-00000.tokens"),
        (PREPARE, "train-00000.txt"),
    ],
)
def test_paths_of_others(kind: Kind, path: str) -> None:
    assert not kind.knows(path.split("/"))


def test_every_verb_knows_what_it_wrote(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", byte_model())
    assert stranger(run, TRAIN) is None
    assert stranger(prepare_corpus(tmp_path, count=50), PREPARE) is None
    exported = export_to_hf(run, tmp_path / "hf")
    assert stranger(exported, EXPORT) is None
    assert stranger(export_to_hf(run, tmp_path / "folded", fold=True), EXPORT) is None
    assert stranger(run, EXPORT) == "checkpoints"
    (exported / "empty").mkdir()
    assert stranger(exported, EXPORT) == "empty"


def test_links_are_seen_and_not_followed(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "big disk"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").touch()
    run.mkdir()
    (run / "checkpoints").symlink_to(elsewhere)  # where checkpoints are kept on another disk
    assert stranger(run, TRAIN) is None
    (run / "notes").symlink_to(elsewhere)
    assert stranger(run, TRAIN) == "notes"
