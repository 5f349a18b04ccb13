"""Seconds of the arms' steps: what is timed, what is kept, and a factor in seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from spherelm.bench import step
from spherelm.cli import main
from spherelm.errors import UserError
from spherelm.ops.choose import Choice
from spherelm.optim.muon import MuonAndAdamW
from spherelm.paper.scaling import page, times
from spherelm.paper.scaling.arms import MAIN
from spherelm.paper.scaling.point import Point, rehearsed
from spherelm.paper.scaling.times import StepTime
from tests.paper.test_scaling import BUDGETS, LAW, made_up, tokens

A_STEP = StepTime("gpt", "8x512", 4096, 65_536, 50.0, 49.0, 51.0, 1_310_720, "H200", "2", "now")


def test_the_arms_that_are_compared_are_timed_unless_others_are_named() -> None:
    assert [p.arm for p in times.chosen("*")] == list(MAIN)
    assert [p.arm for p in times.chosen("ngpt, *-qk-muon")] == ["ngpt", "gpt-qk-muon"]
    larger = times.chosen("ngpt-12x768-*,gpt-1*-4k-92m-*")
    assert [times.name(p) for p in larger] == ["ngpt-12x768-4k", "gpt-12x768-4k"]
    assert {p.config().tokens_per_step for p in (*times.chosen("*"), *larger)} == {65_536}
    with pytest.raises(UserError, match="no run is called 'ngtp'"):
        times.chosen("ngtp")


def test_a_step_is_taken_by_the_optimizer_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(MuonAndAdamW, "step", lambda self: taken.append("muon"))
    monkeypatch.setattr(step, "precondition_", lambda model: taken.append("preconditioned"))
    for arm in ("ngpt", "ngpt-muon", "ngpt-lgp"):
        run = rehearsed(Point(arm, 92).config())
        step.training_step(run, "reference", 4, torch.device("cpu"), Choice())()
    assert taken == ["muon", "preconditioned"]


def test_times_are_kept_beside_those_of_other_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "scaling", "--time", "--rehearse", "--results", str(tmp_path)]
    assert main([*command, "--only", "ngpt-muon,gpt"]) == 0
    assert "gpt-4k: " in capsys.readouterr().out
    gpt, ngpt = times.read(tmp_path)
    assert (gpt.arm, ngpt.arm) == ("gpt", "ngpt-muon")  # in the order of the arms
    assert gpt.tokens == 4 * 64
    assert 0 < gpt.low_ms <= gpt.median_ms <= gpt.high_ms
    assert gpt.tokens_per_s == pytest.approx(256e3 / gpt.median_ms, rel=0.01)
    times.keep(tmp_path, [dataclasses.replace(gpt, median_ms=1.0)])
    again, other = times.read(tmp_path)
    assert again.median_ms == 1.0
    assert other == ngpt


def test_nothing_is_timed_where_it_would_say_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["reproduce", "scaling", "--time"]) == 2
    assert "--time needs a CUDA device" in capsys.readouterr().err
    assert main(["reproduce", "scaling", "--time", "--rehearse"]) == 2
    assert "--rehearse must not write among the results" in capsys.readouterr().err


def test_a_factor_in_seconds(tmp_path: Path) -> None:
    """nGPT needs half of the tokens, and a token takes it a quarter longer: 2 / 1.25 = 1.6."""
    folder = tmp_path / "data" / "scaling"
    for millions in BUDGETS:
        made_up(folder, Point("gpt", millions), LAW.loss(tokens(millions)))
    for seed, off in enumerate((-0.005, 0.005)):
        made_up(folder, Point("ngpt", 92, seed=seed), LAW.loss(2 * tokens(92)) + off)
    made_up(folder, Point("ngpt-muon", 92), LAW.loss(2 * tokens(92)))
    slower = dataclasses.replace(A_STEP, arm="ngpt", median_ms=62.5, tokens_per_s=1_048_576)
    elsewhere = dataclasses.replace(A_STEP, arm="ngpt-muon", device="another")
    times.keep(tmp_path, [slower, A_STEP, elsewhere])
    page.redraw(tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    rows = {
        row.split("|")[4].strip(): [cell.strip() for cell in row.split("|")[8:12]]
        for row in text.splitlines()
        if row.startswith("| 8x512 | 4k | GPT | nGPT")
    }
    needed, factor, interval, seconds = rows["nGPT"]
    value, rest = seconds.split(" (")
    assert float(value) == pytest.approx(float(factor) / 1.25, abs=0.011)
    low, high = rest.removesuffix(")").split(" to ")
    assert float(low) == pytest.approx(float(interval.split()[0]) / 1.25, abs=0.011)
    assert float(high) == pytest.approx(float(interval.split()[2]) / 1.25, abs=0.011)
    assert needed
    assert rows["nGPT, Muon"][3] == "-"  # timed on another device
    assert "| 8x512 | 4k | nGPT | 65,536 | 62.5 | 49.0 to 51.0 | 1,048,576 | 1.250 |" in text
    assert "(H200, torch 2, now; another, torch 2, now)" in text
