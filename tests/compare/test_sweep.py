"""The sweep, and that the defaults are what the recorded one found."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from spherelm import presets
from spherelm.compare import sweep as sweeps
from spherelm.compare import sweep_grid
from spherelm.compare.recorded import RECORDED
from spherelm.compare.sweep import sweep
from spherelm.compare.sweep_grid import (
    GRIDS,
    Plan,
    Seeds,
    Trial,
    configure,
    describe,
    grids_of,
    neighbours,
    setting_of,
)
from spherelm.compare.sweep_record import Record, summary
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.errors import UserError
from spherelm.paper.scaling.settings import SWEEPS
from tests.corpus import sentences
from tests.faults.test_prepare_workers import PATIENCE, is_worker, processes_with

PLAN = Plan("debug", None, "cpu", steps=3, cores=1)
TINY = {
    "gpt": {"lr": (1e-3, 4e-3, 1e12), "init": (0.5, 1.0)},
    "ngpt": {"lr": (1e-3, 1e-2)},
}


def test_sweep_runs_the_neighbours_of_the_preset_and_the_best_afresh(tmp_path):
    record = Record(tmp_path / "sweep.csv", "debug", 3)
    known = Trial("gpt", (("lr", 1e-3), ("init", 1.0)), 0)
    record.add(known, 9.0)  # as if run before
    sweep(PLAN, record, seeds=Seeds(1, 1), jobs=1, grids=TINY)
    assert record.losses[known] == 9.0
    for arch, grid in TINY.items():
        best = record.best(arch, [0])
        for setting in (best, *neighbours(best, grid)):
            assert len(record.of(arch, setting, [0])) == 1, describe(setting)
        (anew,) = record.of(arch, best, [1])
        assert 2 < anew < math.log(300)
    assert math.inf in record.losses.values()  # the rate of 1e12
    assert Record(record.path, "debug", 3).losses == record.losses
    assert "diverged" in summary(record, Seeds(1, 1), TINY)


def test_the_climb_ends_in_a_valley_however_far_it_is(tmp_path, monkeypatch):
    """Losses made up: a bowl whose lowest point is away from the preset in every value."""
    lowest = {"lr": 1.6e-2, "warmup": 0.4, "init": 0.5, "decay": 0.3, "s_z": 2.0, "alpha": 0.2}

    def bowl(trial: Trial) -> float:
        ladders = GRIDS[trial.arch]
        distances = (
            ladders[name].index(value) - ladders[name].index(lowest[name])
            for name, value in trial.setting
        )
        return 1 + sum(d * d for d in distances) + 0.01 * trial.seed

    def run(pool, plan, record, trials):
        for trial in trials:
            if trial not in record.losses:
                record.add(trial, bowl(trial))

    monkeypatch.setattr(sweeps, "_run", run)
    record = Record(tmp_path / "sweep.csv", "debug", 3)
    sweep(PLAN, record, seeds=Seeds(2, 3), jobs=1, grids=GRIDS)
    for arch, grid in GRIDS.items():
        assert record.best(arch, range(2)) == tuple((name, lowest[name]) for name in grid)
        assert len(record.of(arch, record.best(arch, range(2)), range(5))) == 5
    assert "| warmup | 0.2: 2.005 | 0.4: **1.005** | 0.6: 2.005 |" in summary(
        record, Seeds(2, 3), GRIDS
    )


@pytest.mark.parametrize("preset", presets.TUNED)
def test_both_models_have_as_many_values_to_tune_on_the_same_ladders(preset):
    gpt, ngpt = grids_of(preset).values()
    assert len(gpt) == len(ngpt)
    both = [name for name in gpt if name in ngpt]
    assert both == ["lr", "warmup", *(["momentum", "muon"] if preset == "nano-muon" else [])]
    assert all(gpt[name] == ngpt[name] for name in both)
    assert 1.0 in ngpt["s_z"]  # the paper's starting values
    assert 0.05 in ngpt["alpha"]
    for ladder in itertools.chain(gpt.values(), ngpt.values()):
        assert list(ladder) == sorted(set(ladder))


@pytest.mark.parametrize("flag", ["--jobs", "--seeds", "--fresh", "--steps"])
def test_numbers_that_run_nothing_are_refused(flag, tmp_path, capsys):
    assert sweeps.main(["--out", str(tmp_path / "sweep"), flag, "0"]) == 2
    assert f"{flag} must be a whole number of at least 1, not 0" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_record_of_another_preset_or_length_is_refused(tmp_path):
    Record(tmp_path / "sweep.csv", "debug", 3).add(Trial("gpt", (), 0), 2.0)
    for preset, steps in (("nano", 3), ("debug", 4)):
        with pytest.raises(UserError, match="choose another --out"):
            Record(tmp_path / "sweep.csv", preset, steps)


def test_record_of_other_data_is_refused(tmp_path):
    file = tmp_path / "sweep.csv"
    Record(file, "debug", 3, "one").add(Trial("gpt", (), 0), 2.0)
    assert Record(file, "debug", 3, "one").losses == Record(file, "debug", 3).losses
    with pytest.raises(UserError, match="other data; choose another --out"):
        Record(file, "debug", 3, "two")


def test_a_damaged_row_is_refused_and_none_is_written_in_part(tmp_path, monkeypatch):
    file = tmp_path / "sweep.csv"
    Record(file, "debug", 3).add(Trial("gpt", (("lr", 1e-3),), 0), 2.0)
    whole = file.read_text()
    for part in ("debug,3,,gpt,lr=", "debug,3,,gpt,lr=1,0,", "debug,3,,gtp,lr=1,0,2.0"):
        file.write_text(f"{whole}{part}")
        with pytest.raises(UserError, match=r"is damaged: .* is not the row of a run"):
            Record(file, "debug", 3)
    file.write_text(whole)
    record = Record(file, "debug", 3)
    monkeypatch.setattr(os, "replace", lambda *_: None)  # killed before the last moment
    record.add(Trial("gpt", (("lr", 1e-3),), 1), 3.0)
    assert file.read_text() == whole


def test_a_setting_counts_where_all_its_seeds_ran(tmp_path):
    record = Record(tmp_path / "sweep.csv", "debug", 3)
    half, whole = (("lr", 1e-3),), (("lr", 4e-3),)
    for setting, losses in ((half, [1.0]), (whole, [2.0, 3.0, 2.1, 2.3])):
        for seed, loss in enumerate(losses):
            record.add(Trial("gpt", setting, seed), loss)
    assert math.isnan(record.mean("gpt", half, range(2)))
    assert record.mean("gpt", whole, range(2)) == 2.5
    assert record.best("gpt", range(2)) == whole
    told = summary(record, Seeds(2, 2), {"gpt": {"lr": (1e-3, 4e-3)}})
    # The mean and the deviation of the fresh seeds alone.
    assert "| gpt: lr=0.004 | 2.000, 3.000 | 2.100, 2.300 | 2.200 | 0.141 |" in told
    assert "| lr | 0.001: not from all seeds | 0.004: **2.500** | the end of the grid |" in told
    # It has no place among the means, and stands behind them.
    assert told.endswith("| lr=0.001 | not from all seeds | 1.000 |\n")


def test_data_of_a_larger_vocabulary_is_swept(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(sentences(3000))
    data = tmp_path / "data"
    prepare(PrepareConfig((str(text),), data, train_tokenizer=300, val_fraction=0.2, workers=1))
    plan = dataclasses.replace(PLAN, data=str(data))
    assert 2 < sweeps.run_trial(plan, Trial("gpt", (), 0)) < 9


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
@pytest.mark.usefixtures("heeding_interrupts")
@pytest.mark.parametrize("stop", ["ctrl-c", "kill", "kill of a run"])
def test_a_sweep_that_is_stopped_leaves_no_process_and_goes_on(stop, tmp_path):
    """Ctrl-C of a terminal goes to its runs, too; a kill to none of them."""
    out, mark = tmp_path / "sweep", f"{os.getpid()}-{tmp_path.name}"
    command = [sys.executable, "-m", "spherelm.compare.sweep", "--preset", "debug"]
    command += ["--steps", "3", "--seeds", "9", "--jobs", "2", "--out", str(out)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "SPHERELM_TEST_MARK": mark},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[1/153]")
    if stop == "ctrl-c":
        os.killpg(process.pid, signal.SIGINT)
    elif stop == "kill":
        process.kill()
    else:
        os.kill(next(filter(is_worker, processes_with(mark))), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    deadline = time.monotonic() + PATIENCE
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not processes_with(mark)
    if stop == "ctrl-c":
        assert process.returncode == 130
        assert said.splitlines()[-1] == "spherelm: interrupted; the same command goes on from here"
    if stop == "kill of a run":
        assert process.returncode == 2
        assert said.splitlines()[-1].startswith("spherelm: a run has died, perhaps for want of mem")
    assert "Traceback" not in said
    file = out / "sweep.csv"
    assert 1 <= len(Record(file, "debug", 3).losses) < 153


def test_settings_reach_the_configuration():
    run = configure(PLAN, Trial("ngpt", (("lr", 0.5), ("s_z", 3.0), ("alpha", 0.3)), seed=4))
    assert run.optim.lr == 0.5
    assert run.model.s_z.init == 3.0
    assert run.model.alpha_attn.init == run.model.alpha_mlp.init == 0.3
    assert (run.train.seed, run.train.steps, run.train.precision) == (4, 3, "fp32")
    run = configure(PLAN, Trial("gpt", (("warmup", 0.5), ("init", 2.0), ("decay", 0.7)), 0))
    assert run.optim.warmup_steps == 2
    assert run.model.init_std == pytest.approx(2 / math.sqrt(run.model.d_model))
    assert run.optim.weight_decay == 0.7


def test_runs_at_a_time_share_the_cores(tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(sweeps, "sweep", lambda plan, record, **_: plans.append(plan))
    monkeypatch.setattr(sweeps, "summary", lambda *_: "")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for jobs in ("1", "3", "9"):
        words = ["--preset", "debug", "--out", str(tmp_path / jobs), "--jobs", jobs]
        assert sweeps.main(words) == 0
    assert [plan.cores for plan in plans] == [8, 2, 1]


def test_a_gpu_finds_what_a_cpu_would(monkeypatch):
    """TF32 is off where only deterministic algorithms are used."""
    assert not configure(PLAN, Trial("gpt", (), 0)).train.deterministic
    monkeypatch.setattr(sweep_grid, "choose_device", lambda name: torch.device("cuda"))
    assert configure(PLAN, Trial("gpt", (), 0)).train.deterministic


@pytest.mark.parametrize("preset", ["debug", "nano-muon"])
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_setting_comes_back_from_its_configuration(arch, preset):
    plan, grid = Plan(preset, None, "cpu", steps=100, cores=1), grids_of(preset)[arch]
    setting = tuple((name, ladder[1]) for name, ladder in grid.items())
    assert setting_of(configure(plan, Trial(arch, setting, 0)), grid) == setting


SEEDS = {"nano": Seeds(3, 3), "nano-muon": Seeds(1, 3)}
"""Those of the recorded sweeps."""


def recorded(preset: str) -> Record:
    """The record of a preset's sweep, as the documentation has it."""
    file = Path(__file__).parents[2] / "docs" / "results" / SWEEPS[preset]
    assert file.exists()
    return Record(file, preset, presets.get(preset).train.steps)


def best_of(record: Record, arch: str):
    return record.best(arch, SEEDS[record.preset].chosen_by)


def test_every_tuned_preset_has_a_record():
    assert set(SWEEPS) == set(SEEDS) == set(presets.TUNED) == set(RECORDED)


@pytest.mark.parametrize("preset", SEEDS)
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_the_preset_is_the_best_of_the_recorded_sweep(preset, arch):
    """In all tuned values, GPT's init among them: to the last digit, not to the grid."""
    record, own = recorded(preset), presets.get(f"{arch}-{preset}")
    plan = Plan(preset, None, "cpu", record.steps, cores=1)
    tuned = configure(plan, Trial(arch, best_of(record, arch), 0))
    assert tuned.model == own.model
    assert tuned.optim == own.optim


@pytest.mark.parametrize("preset", SEEDS)
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_the_recorded_optimum_is_inside_the_grid(preset, arch):
    """All around it was run from the same seeds, and lost; no value stands at an end, but for no
    warmup at all."""
    record, chosen_by = recorded(preset), SEEDS[preset].chosen_by
    best = best_of(record, arch)
    around = neighbours(best, grids_of(preset)[arch])
    assert len(around) == 2 * len(best) - (dict(best)["warmup"] == 0)
    for setting in around:
        mean = record.mean(arch, setting, chosen_by)
        assert mean > record.mean(arch, best, chosen_by), describe(setting)


@pytest.mark.parametrize("preset", SEEDS)
def test_both_models_had_the_same_effort(preset):
    record = recorded(preset)
    settings = {arch: record.settings(arch) for arch in GRIDS}
    assert len(settings["gpt"]) >= len(settings["ngpt"])
    runs = {arch: sum(t.arch == arch for t in record.losses) for arch in GRIDS}
    assert runs["gpt"] >= runs["ngpt"]


@pytest.mark.parametrize("preset", SEEDS)
def test_the_report_quotes_the_fresh_seeds(preset):
    record, fresh = recorded(preset), SEEDS[preset].fresh
    for arch, losses in RECORDED[preset].losses.items():
        found = record.of(arch, best_of(record, arch), fresh)
        assert losses == tuple(round(loss, 3) for loss in found)


def test_ngpt_leads_at_every_recorded_seed_by_more_than_chance():
    """The claim of docs/results/compare.md."""
    record = recorded("nano")
    gpt, ngpt = (record.of(arch, best_of(record, arch), range(6)) for arch in GRIDS)
    leads = [a - b for a, b in zip(gpt, ngpt, strict=True)]
    assert len(leads) == 6
    assert min(leads) > 2 * RECORDED["nano"].noise
