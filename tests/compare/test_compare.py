"""What a comparison computes, on curves made by hand, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from spherelm import presets
from spherelm.cli import main
from spherelm.compare.charts import loss_over_seconds, loss_over_tokens
from spherelm.compare.comparison import read_side, tokens_to_reach
from spherelm.compare.departures import departures
from spherelm.compare.pair import claimed, configure
from spherelm.compare.recorded import RECORDED
from spherelm.compare.report import render
from spherelm.compare.table import caveat, rows, verdict
from spherelm.config import DataConfig
from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.model.config import ARCHS
from spherelm.runs.run_dir import RunDir
from tests.compare.made import comparison
from tests.saved_runs import begin_run


@pytest.mark.parametrize(
    ("curve", "loss", "tokens"),
    [
        ([(100, 4.0), (200, 3.0), (300, 2.0)], 2.5, 250),  # halfway between two evaluations
        ([(100, 4.0), (200, 3.0), (300, 2.0)], 3.0, 200),  # exactly at one
        ([(100, 4.0), (200, 3.0)], 2.9, None),  # never
        ([(100, 4.0), (200, 3.0)], 4.5, 100),  # before the first evaluation: its upper bound
        ([(100, 4.0), (200, 2.0), (300, 3.0), (400, 1.0)], 2.5, 175),  # the first of two times
        ([(100, 4.0), (200, 4.0), (300, 3.0)], 4.0, 100),  # a flat start
        ([(100, 4.0), (200, 5.0), (300, 3.0)], 3.5, 275),  # up before down
    ],
)
def test_tokens_to_reach_a_loss(curve, loss, tokens):
    assert tokens_to_reach(curve, loss) == (tokens if tokens is None else pytest.approx(tokens))


def test_speed_up_counts_tokens_and_time():
    made = comparison(gpt=[5.0, 4.0, 3.0, 2.0, 2.0], ngpt=[4.0, 2.0, 1.5, 1.2, 1.0])
    # nGPT is at GPT's 2.0 after 2 of 5 evaluations; its steps take twice as long.
    assert made.outcome == "ngpt"
    assert made.crossing.speedup_tokens == pytest.approx(2.5)
    assert made.crossing.speedup_seconds == pytest.approx(1.25)
    result = made.as_json()
    assert result["tokens_needed"] == pytest.approx(made.gpt.tokens / 2.5)
    assert (result["speedup_tokens"], result["speedup_seconds"]) == (
        pytest.approx(2.5),
        pytest.approx(1.25),
    )
    span = loss_over_seconds(made).span
    assert (span.left, span.right) == (pytest.approx(4.0), pytest.approx(5.0))  # of 50 steps
    assert span.text == "1.25× less time"
    assert verdict(made) == "At this seed, nGPT reached GPT's final loss with 2.50× fewer tokens"
    by_name = {row.what: row for row in rows(made)}
    assert by_name["speed-up in tokens, one seed"].ngpt == "2.50"
    assert by_name["tokens to GPT's final loss"].gpt == f"{made.gpt.tokens:,}"


@pytest.mark.parametrize("ahead", ["gpt", "ngpt"])
def test_where_only_the_end_was_evaluated_nobody_needed_fewer_tokens(ahead):
    made = comparison(**{"gpt": [2.0], "ngpt": [2.0], ahead: [1.5]})
    assert made.crossing.speedup_tokens == 1
    beginning, other = ("nGPT", "GPT") if ahead == "ngpt" else ("GPT was ahead: it", "nGPT")
    ends = f"{beginning} ended at 1.500, below {other}'s 2.000, with the same tokens"
    assert verdict(made) == f"At this seed, {ends}"
    assert loss_over_tokens(made).span is None
    assert not [row.what for row in rows(made) if "speed-up" in row.what or "tokens to" in row.what]
    page = render(made)
    assert "so there is no speed-up to report" in page
    assert "has not come down yet" not in page  # it has, where the end is all there is


@pytest.mark.parametrize(("loss", "told"), [(2.008, None), (2.012, "1.01×")])
def test_a_factor_that_would_be_told_as_one_is_not_told(loss, told):
    """In tokens, and in time where a step takes both as long: 1.004 and 1.006."""
    made = comparison(gpt=[3.0, loss], ngpt=[3.0, 2.0])
    made = dataclasses.replace(made, ngpt=dataclasses.replace(made.ngpt, seconds_per_step=0.1))
    assert (verdict(made).endswith("with the same tokens")) == (told is None)
    for chart in (loss_over_tokens(made), loss_over_seconds(made)):
        assert (chart.span and chart.span.text.split()[0]) == told


def test_gpt_may_be_ahead():
    made = comparison(gpt=[3.0, 2.0, 1.5, 1.2], ngpt=[3.5, 3.0, 2.5, 2.0])
    assert made.outcome == "gpt"
    assert made.crossing.speedup_tokens == pytest.approx(2.0)
    assert made.crossing.speedup_seconds == pytest.approx(4.0)  # and its steps take half as long
    wanted = "At this seed, GPT was ahead: it reached nGPT's final loss with 2.00× fewer tokens"
    assert verdict(made) == wanted
    by_name = {row.what: row for row in rows(made)}
    assert by_name["tokens to nGPT's final loss"].gpt == f"{made.gpt.tokens // 2:,}"
    assert by_name["speed-up in tokens, one seed"].ngpt == "1"
    result = made.as_json()
    assert (result["outcome"], result["lead"]) == ("gpt", pytest.approx(-0.8))


def as_recorded(gpt: float, ngpt: float):
    """A comparison of the very runs that the sweep recorded, with other losses at the end."""
    made = comparison(gpt=[3.0, gpt], ngpt=[3.0, ngpt])
    gpt_side, ngpt_side = (
        dataclasses.replace(side, config=presets.get(f"{side.arch}-nano")) for side in made.sides
    )
    return dataclasses.replace(made, preset="nano", gpt=gpt_side, ngpt=ngpt_side)


def test_a_difference_that_seeds_make_is_none():
    noise = RECORDED["nano"].noise
    for lead, outcome in ((1.9, "neither"), (2.1, "ngpt"), (-1.9, "neither"), (-2.1, "gpt")):
        made = as_recorded(2.0, 2.0 - lead * noise)
        assert made.outcome == outcome
        assert ("No difference beyond chance" in verdict(made)) == (outcome == "neither")
        assert "At this seed" not in verdict(made)  # other seeds say the same
        assert (made.crossing is None) == (outcome == "neither")
        assert (made.as_json()["speedup_seconds"] is None) == (outcome == "neither")
        assert made.as_json()["noise"] == noise
        assert f"a lead of 0.120 \u00b1 {noise:.3f}" in caveat(made)
        assert f"{2 * noise:.3f} counts as none" in caveat(made)
    assert not any("speed-up" in row.what for row in rows(as_recorded(2.0, 2.0)))
    assert comparison(gpt=[2.0], ngpt=[2.0]).outcome == "neither"
    assert comparison(gpt=[2.0], ngpt=[2.0]).as_json()["noise"] is None


def test_the_record_holds_only_for_the_very_runs_it_is_of():
    made = as_recorded(2.0, 1.9)
    assert made.record is RECORDED["nano"]
    changes = (
        ("optim.lr", 1e-3),
        ("model.d_mlp", 64),
        ("data.path", "tokens"),
        ("train.steps", 1400),
        ("train.batch_size", 4),
        ("train.weight_storage", "bf16"),
    )
    for field, value in changes:
        other = dataclasses.replace(made.gpt, config=override(made.gpt.config, {field: value}))
        changed = dataclasses.replace(made, gpt=other)
        assert changed.record is None, field
        assert "has not been recorded" in caveat(changed)
        assert changed.as_json()["gpt"]["tuned"] is False
        assert changed.as_json()["ngpt"]["tuned"] is True
    for field, value in (("train.seed", 5), ("train.device", "cuda"), ("train.log_every", 1)):
        other = dataclasses.replace(made.gpt, config=override(made.gpt.config, {field: value}))
        assert dataclasses.replace(made, gpt=other).record is not None, field


def runs_of(preset: str, **changes):
    base = presets.get(f"gpt-{preset}")
    train = dataclasses.replace(base.train, **changes)
    return configure(preset, train, DataConfig(), 300, {"gpt": None, "ngpt": 0.5})


def test_both_runs_see_the_same_tokens():
    gpt, ngpt = runs_of("nano", steps=100, seed=7).values()
    assert gpt.train == ngpt.train
    assert gpt.data == ngpt.data
    shape = ("vocab_size", "d_model", "n_layers", "n_heads", "context")
    assert [getattr(gpt.model, f) for f in shape] == [getattr(ngpt.model, f) for f in shape]
    assert (gpt.model.arch, ngpt.model.arch) == ARCHS
    assert gpt.model.vocab_size == 300
    assert ngpt.optim.lr == 0.5


def test_muons_rate_keeps_its_proportion_to_a_rate_that_is_given():
    """Who lowers nGPT's rate may not know that its preset has a rate for Muon."""
    gpt, ngpt = runs_of("nano-muon").values()
    assert gpt.optim.muon_lr is presets.get("gpt-nano-muon").optim.muon_lr is None
    swept = presets.get("ngpt-nano-muon").optim
    assert ngpt.optim.lr == 0.5
    assert ngpt.optim.muon_lr == pytest.approx(0.5 * swept.muon_lr / swept.lr)


def test_warmup_keeps_its_share_of_a_shorter_run():
    whole = presets.get("gpt-nano")
    part = runs_of("nano", steps=whole.train.steps // 4)["gpt"]
    assert part.optim.warmup_steps == whole.optim.warmup_steps // 4


def test_an_unknown_size_names_the_nearest():
    with pytest.raises(UserError, match="unknown preset 'nanno'; did you mean 'nano'"):
        configure("nanno", presets.get("nano").train, DataConfig(), 257, {"gpt": None})


def test_a_preset_of_one_model_is_refused(capsys, tmp_path):
    assert main(["compare", "--preset", "ngpt-nano", "--out", str(tmp_path / "new")]) == 2
    assert "a size for both models, such as nano" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def begin(out: Path, runs) -> None:
    begin_run(RunDir(out / "gpt"), runs["gpt"])


def claim(out: Path, runs, *, resume: str, force: bool) -> None:
    with claimed(out, runs, resume=resume, force=force):
        pass


def test_a_folder_that_holds_something_is_refused(tmp_path):
    runs = runs_of("debug")
    (tmp_path / "thesis.txt").write_text("mine")
    for resume, force in (("never", False), ("auto", False), ("never", True)):
        with pytest.raises(UserError, match=r"holds thesis.txt, which `spherelm compare` did not"):
            claim(tmp_path, runs, resume=resume, force=force)
    with pytest.raises(UserError, match="is a file"):
        claim(tmp_path / "thesis.txt", runs, resume="never", force=True)


def test_a_comparison_is_replaced_only_by_force(tmp_path):
    runs, out = runs_of("debug"), tmp_path / "out"
    begin(out, runs)
    (out / "report.html").write_text("old")
    with pytest.raises(UserError, match="already holds a comparison"):
        claim(out, runs, resume="never", force=False)
    (out / "gpt" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds gpt/notes.txt, which"):
        claim(out, runs, resume="never", force=True)
    assert (out / "report.html").exists()
    (out / "gpt" / "notes.txt").unlink()
    with claimed(out, runs, resume="never", force=True):
        assert [path.name for path in out.iterdir()] == [".spherelm"]
        with pytest.raises(UserError, match="is being written by `spherelm compare`, process"):
            claim(out, runs, resume="never", force=True)
        begin(out, runs)  # the runs of a comparison lie in its own folder
    with pytest.raises(UserError, match=r"lies inside .*, which `spherelm compare` wrote"):
        begin(out, runs)


def test_what_an_earlier_end_wrote_is_gone_while_a_comparison_goes_on(tmp_path):
    """It would speak of another comparison until this one ends."""
    runs = runs_of("debug")
    begin(tmp_path, runs)
    (tmp_path / "inside").mkdir()
    written = [tmp_path / name for name in ("result.json", "report.html", "inside/index.html")]
    for file in written:
        file.write_text("old")
    with claimed(tmp_path, runs, resume="auto", force=False):
        assert not [file for file in written if file.exists()]
        assert RunDir(tmp_path / "gpt").holds_a_run()


def test_a_side_is_what_its_folder_says(tmp_path):
    """Of the seconds the median: the first step and one that was disturbed do not count."""
    begin(tmp_path, runs_of("debug"))
    run_dir = RunDir(tmp_path / "gpt")
    lines = [{"step": n, "tokens": 512 * n, "loss": 4.0} for n in (1, 2, 3)]
    for line, loss in zip(lines[1:], (3.5, 3.0), strict=True):
        line |= {"val_loss": loss, "val_bits_per_byte": loss / 2}
    timed = [{"step": n, "seconds": s} for n, s in ((1, 9.0), (2, 0.1), (3, 0.2))]
    for file, found in ((run_dir.metrics, lines), (run_dir.speed, timed)):
        file.write_text("".join(f"{json.dumps(line)}\n" for line in found))
    side = read_side(run_dir, "gpt")
    assert side.curve == [(1024, 3.5), (1536, 3.0)]
    assert (side.final_loss, side.bits_per_byte, side.seconds_per_step) == (3.0, 1.5, 0.2)
    run_dir.speed.write_text("")
    with pytest.raises(UserError, match=r"speed.jsonl is damaged: it has none of the lines"):
        read_side(run_dir, "gpt")


@pytest.mark.parametrize("change", [{"steps": 60}, {"steps": 10}, {"seed": 1}, {"batch_size": 4}])
def test_resuming_another_comparison_is_refused(tmp_path, change):
    begin(tmp_path, runs_of("debug"))
    claim(tmp_path, runs_of("debug"), resume="auto", force=False)
    (field,) = change
    with pytest.raises(UserError, match=rf"cannot resume with train\.{field}"):
        claim(tmp_path, runs_of("debug", **change), resume="auto", force=False)


def test_departures_from_the_paper_are_those_of_the_configuration():
    found = {d.what: d for d in departures(as_recorded(3.0, 2.0))}
    gpt, ngpt = presets.get("gpt-nano"), presets.get("ngpt-nano")
    assert found["nGPT: s_z starts at"].here == f"{ngpt.model.s_z.init:g}"
    assert found["nGPT: s_z starts at"].paper == "1"
    assert found["nGPT: alpha_attn starts at"].paper == "0.05"
    assert "nGPT: s_qk starts at" not in found
    assert found["GPT: matrices start with deviation"].here == f"{gpt.model.init_std:.3g}"
    times_root = gpt.model.matrix_std * math.sqrt(gpt.model.d_model)
    said = f"{times_root:.2g}/sqrt({gpt.model.d_model})"  # the value itself, not another one
    assert said in found["GPT: matrices start with deviation"].why
    assert found["Adam's beta2"].here == f"{gpt.optim.beta2:g}"
    assert found["Adam's beta2"].paper.startswith("not stated")
    assert found["GPT: warmup"].paper == "2000 steps"
    assert found["nGPT: warmup"].here == "300 steps, 20% of the run"
    assert found["budget"].here == "1500 steps of 2 sequences"
    assert all(d.why for d in found.values())


def test_only_runs_that_a_sweep_covers_are_called_tuned():
    swept = {d.what: d for d in departures(as_recorded(3.0, 2.0))}
    other = {d.what: d for d in departures(comparison(gpt=[3.0], ngpt=[2.0]))}
    assert "its own sweep" in swept["learning rate"].why
    assert "no sweep" in other["learning rate"].why


def test_the_paper_itself_departs_only_in_what_it_leaves_open():
    made = comparison(gpt=[3.0], ngpt=[2.0])
    gpt, ngpt = (
        dataclasses.replace(side, config=presets.get(f"{side.arch}-0.5b-1k")) for side in made.sides
    )
    paper = dataclasses.replace(made, gpt=gpt, ngpt=ngpt)
    assert [d.what for d in departures(paper)] == ["learning rate", "matrices are stored in"]
    short = dataclasses.replace(gpt, config=override(gpt.config, {"train.steps": 99_999}))
    assert "budget" in [d.what for d in departures(dataclasses.replace(paper, gpt=short))]
