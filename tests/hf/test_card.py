"""The model card: which losses it shows, and what the model needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spherelm.config import RunConfig
from spherelm.errors import UserError
from spherelm.hf.card import TRANSFORMERS, model_card, read_losses
from spherelm.model.config import ModelConfig


def write_metrics(file: Path, steps: int) -> None:
    """A line a step, every second with a validation loss."""
    with open(file, "w") as out:
        for step in range(1, steps + 1):
            line = {"step": step, "tokens": 10 * step, "loss": 9.0}
            if step % 2 == 0:
                line |= {"val_loss": 5 - step / 100, "val_bits_per_byte": 7 - step / 100}
            out.write(json.dumps(line) + "\n")


def test_losses_up_to_the_exported_step(tmp_path: Path) -> None:
    write_metrics(tmp_path / "m", 12)
    assert [r["step"] for r in read_losses(tmp_path / "m", until=8, began=0)] == [2, 4, 6, 8]
    assert read_losses(tmp_path / "missing", until=8, began=None) == []
    (tmp_path / "cut").write_text((tmp_path / "m").read_text() + '{"step": 13, "val')
    assert len(read_losses(tmp_path / "cut", until=12, began=0)) == 6  # a line cut short is none
    for began in (0, None):
        (tmp_path / "broken").write_text("{\n" + (tmp_path / "m").read_text())
        with pytest.raises(UserError, match="broken is damaged"):
            read_losses(tmp_path / "broken", until=8, began=began)
    with pytest.raises(UserError, match="m is damaged"):
        read_losses(tmp_path / "m", until=13, began=0)  # the last one is missing


def test_many_losses_are_spread_over_the_run(tmp_path: Path) -> None:
    write_metrics(tmp_path / "m", 100)
    run = RunConfig(model=ModelConfig(vocab_size=257, d_model=16, n_heads=2))
    losses = read_losses(tmp_path / "m", until=100, began=0)
    card = model_card("x", run, losses, folded=False)
    shown = [line.split(" | ") for line in card.splitlines() if line.startswith("| ")][1:]
    steps = [int(row[0].strip("| ")) for row in shown]
    assert steps == [2, 16, 30, 44, 58, 72, 86, 100]
    assert shown[-1][1:] == ["1,000", "4.0000", "6.0000 |"]
    few = model_card("x", run, losses[:3], folded=False)
    assert few.count("| 4.9") == 3
    none = model_card("x", run, [], folded=True)
    assert "None were recorded" in none
    assert "folded into the matrices" in none


def test_which_transformers_an_ngpt_needs_is_said_alike_everywhere() -> None:
    root, said = Path(__file__).parents[2], f"transformers {TRANSFORMERS} or newer"
    assert f'"transformers>={TRANSFORMERS}"' in (root / "pyproject.toml").read_text()
    assert said in (root / "docs/huggingface.md").read_text()
    for arch, needed in (("ngpt", True), ("gpt", False)):  # which becomes a Llama like any other
        run = RunConfig(model=ModelConfig(vocab_size=257, d_model=16, n_heads=2, arch=arch))
        assert (said in model_card("x", run, [], folded=False)) == needed


def test_an_older_transformers_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text("class PretrainedConfig: ...")  # as 4 spells it
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", "import spherelm.hf.register"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    last = ended.stderr.splitlines()[-1]
    assert f"spherelm.hf.register needs transformers {TRANSFORMERS} or newer" in last
