"""What is read back: whole, of its kind, and no name in it leads elsewhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spherelm import records
from spherelm.data.open import open_dataset
from spherelm.errors import UserError
from spherelm.hf.export import export_to_hf
from spherelm.hf.import_run import import_from_hf
from spherelm.records import beside
from spherelm.saved import load_model
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run

HOSTILE = ("", ".", "..", "a/b", "../a", "/etc/passwd", "a\\b", "c:d", "a\0b", "a\nb", 7, None, [])


@pytest.mark.parametrize("name", HOSTILE)
def test_what_could_lead_elsewhere(name: object) -> None:
    with pytest.raises(UserError, match=r"list.json is damaged: .* is not the name of a file"):
        beside(Path("list.json"), name)


def test_what_is_a_name() -> None:
    assert beside(Path("a/list.json"), "shard-00001.safetensors") == Path(
        "a/shard-00001.safetensors"
    )


@pytest.mark.parametrize(
    "write", [records.line, lambda value: records.seal(json.dumps(value, indent=1))]
)
def test_a_seal_is_found_whatever_was_changed(write: Callable[[Any], str]) -> None:
    """Every character of the text made another, one at a time: refused, or no other value."""
    value = {"name": "a run", "steps": 7, "losses": [1.5, None]}
    sound = write(value).encode()
    assert records.parse(sound, "it") == value
    for at in range(len(sound)):
        for other in b' "7a_':
            changed = sound[:at] + bytes([other]) + sound[at + 1 :]
            with contextlib.suppress(records.Damaged):
                assert records.parse(changed, "it") == value, changed


def test_a_member_is_of_its_kind() -> None:
    values = {"steps": 7, "loss": 1.5, "right": True}
    assert records.field(values, "steps", int, "it") == 7
    assert records.field(values, "right", bool, "it") is True
    for name, kind in (("loss", int), ("steps", str), ("right", int), ("right", (int, float))):
        with pytest.raises(records.Damaged, match=f"its '{name}' cannot be"):
            records.field(values, name, kind, "it")
    with pytest.raises(records.Damaged, match="it has no 'tokens'"):
        records.field(values, "tokens", int, "it")


def edit(file: Path, **changes: object) -> None:
    """Sealed like any other: whoever means harm can count, too."""
    records.write(file, {**records.read(file), **changes})


def test_a_step_that_is_none_imports_nothing(tmp_path: Path) -> None:
    exported = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").touch()
    for step in ("x/../../victim", "7", -1, 1.5, True, [], 10**30):
        edit(exported / "spherelm.json", step=step)
        with pytest.raises(UserError, match=r"spherelm.json is damaged: .*step"):
            import_from_hf(exported, tmp_path / "out")
    assert (tmp_path / "victim" / "file").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"run", "hf", "victim"}


def test_checksums_of_files_elsewhere_are_not_asked_for(tmp_path: Path) -> None:
    exported = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    for crc32 in ({"../run/config.toml": "0"}, {"/etc/passwd": "0"}, [1], "x"):
        edit(exported / "spherelm.json", crc32=crc32)
        with pytest.raises(UserError, match=r"spherelm.json is damaged"):
            load_model(exported)


def test_losses_that_are_none_reach_no_card(tmp_path: Path) -> None:
    exported = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    good = {"step": 7, "tokens": 700, "val_loss": 2.5}
    edit(exported / "spherelm.json", losses=[good])
    card = (export_to_hf(exported, tmp_path / "again") / "README.md").read_text()
    assert "| 7 | 700 | 2.5000 | - |" in card
    for bad in ({"step": "7"}, 3, {**good, "val_loss": "](x)"}, {**good, "tokens": None}):
        edit(exported / "spherelm.json", losses=[good, bad])
        with pytest.raises(UserError, match=r"spherelm.json is damaged"):
            export_to_hf(exported, tmp_path / "third")


def test_a_checkpoint_that_lists_files_elsewhere(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", byte_model())
    manifest = run / "checkpoints" / "step_7" / "manifest.json"
    edit(manifest, files={"../../config.toml": {"bytes": 1, "crc32": "0"}})
    with pytest.raises(UserError, match=r"damaged: manifest.json: '../../config.toml' is not"):
        load_model(run)


def test_a_dataset_with_splits_elsewhere(tmp_path: Path) -> None:
    data = prepare_corpus(tmp_path, count=50)
    (tmp_path / "other").mkdir()
    edit(data / "dataset.json", splits={"../other/train": {"shards": 1, "tokens": 1}})
    with pytest.raises(UserError, match=r"dataset.json is damaged"):
        open_dataset(data)


def test_the_card_shows_a_name_as_it_is(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", byte_model())
    name = '"); import os  # [x](y)\n<script>`'
    card = (export_to_hf(run, tmp_path / name) / "README.md").read_text()
    heading = next(line for line in card.splitlines() if line.startswith("# "))
    assert heading.count("<") == heading.count("\\<") == 1
    assert "\\[x\\]\\(y\\)" in heading
    code = card.partition("```python\n")[2].partition("```")[0]
    compile(code, "card", "exec")
    assert f"from_pretrained({json.dumps(name)}, trust_remote_code=True)" in code
