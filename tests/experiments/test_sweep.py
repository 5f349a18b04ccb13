"""The sweep, and that the defaults are what the recorded one found."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from spherelm import presets
from spherelm.errors import UserError
from spherelm.experiments.sweep import (
    GRIDS,
    Plan,
    Record,
    Trial,
    configure,
    summary,
    sweep,
    trials_of,
)

RECORDED = Path(__file__).parents[2] / "docs" / "results" / "compare-sweep.csv"
PLAN = Plan("debug", None, "cpu", steps=3, cores=1)
TINY = {
    "gpt": {"lr": (1e-3, 4e-3), "warmup": (0.0,)},
    "ngpt": {"lr": (1e-2, 1e12), "s_z": (8.0,)},
}


def test_sweep_runs_each_setting_once_and_the_best_from_more_seeds(tmp_path):
    record = Record(tmp_path / "sweep.csv", "debug", 3)
    record.add(Trial("gpt", (("lr", 1e-3), ("warmup", 0.0)), 0), 9.0)  # as if run before
    sweep(PLAN, record, seeds=2, jobs=1, grids=TINY)
    for arch in ("gpt", "ngpt"):
        assert sorted(t.seed for t in record.losses if t.arch == arch) == [0, 0, 1]
    assert record.losses[Trial("gpt", (("lr", 1e-3), ("warmup", 0.0)), 0)] == 9.0
    assert 2 < record.losses[Trial("gpt", (("lr", 4e-3), ("warmup", 0.0)), 0)] < math.log(300)
    assert Record(record.path, "debug", 3).losses == record.losses


def test_diverged_runs_are_written_as_such(tmp_path):
    record = Record(tmp_path / "sweep.csv", "debug", 3)
    record.add(Trial("ngpt", (("lr", 1.0),), 0), math.inf)
    record.add(Trial("ngpt", (("lr", 0.1),), 0), 2.5)
    text = summary(Record(record.path, "debug", 3), {"ngpt": {"lr": (1.0, 0.1)}})
    assert "| diverged | **2.500** |" in text


def test_record_of_another_preset_or_length_is_refused(tmp_path):
    Record(tmp_path / "sweep.csv", "debug", 3).add(Trial("gpt", (), 0), 2.0)
    for preset, steps in (("nano", 3), ("debug", 4)):
        with pytest.raises(UserError, match="choose another --out"):
            Record(tmp_path / "sweep.csv", preset, steps)


def test_settings_reach_the_configuration():
    setting = (("lr", 0.5), ("s_z", 3.0), ("alpha", 0.3))
    run = configure(PLAN, Trial("ngpt", setting, seed=4))
    assert run.optim.lr == 0.5
    assert run.model.s_z.init == 3.0
    assert run.model.alpha_attn.init == run.model.alpha_mlp.init == 0.3
    assert (run.train.seed, run.train.steps, run.train.precision) == (4, 3, "fp32")
    assert configure(PLAN, Trial("gpt", (("warmup", 0.5),), 0)).optim.warmup_steps == 2


def test_grids_hold_the_papers_starting_values():
    settings = [dict(trial.setting) for trial in trials_of("ngpt", GRIDS["ngpt"])]
    assert any(s["s_z"] == 1.0 and s["alpha"] == 0.05 for s in settings)


def test_defaults_are_the_best_of_the_recorded_sweep():
    nano = {arch: presets.get(f"{arch}-nano") for arch in ("gpt", "ngpt")}
    steps = nano["gpt"].train.steps
    assert RECORDED.exists()
    record = Record(RECORDED, "nano", steps)
    for arch in GRIDS:
        assert len(record.of(arch, record.best(arch))) >= 3
    gpt, ngpt = (dict(record.best(arch)) for arch in ("gpt", "ngpt"))
    optim, model = nano["gpt"].optim, nano["ngpt"].model
    assert optim.lr == gpt["lr"]
    assert optim.warmup_steps == round(gpt["warmup"] * steps)
    assert nano["ngpt"].optim.lr == ngpt["lr"]
    assert model.s_z.init == ngpt["s_z"]
    assert model.alpha_attn.init == model.alpha_mlp.init == ngpt["alpha"]


def test_recorded_ngpt_ends_below_the_best_gpt():
    """The claim of docs/results/compare.md: every seed of nGPT beats every GPT that was run."""
    record = Record(RECORDED, "nano", presets.get("nano").train.steps)
    gpt = min(loss for trial, loss in record.losses.items() if trial.arch == "gpt")
    assert max(record.of("ngpt", record.best("ngpt"))) < gpt
