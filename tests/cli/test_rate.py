"""`spherelm train` without a rate: the values that were measured best, and a word on from what."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from spherelm import presets
from spherelm.cli import main
from spherelm.config_io import override, to_dict
from spherelm.measured import recommend as rule
from spherelm.measured.settings import Setting, gather
from spherelm.paper.scaling.point import Point
from spherelm.runs.run_dir import RunDir

DATA = Path(__file__).parents[1] / "compat" / "data"
SMALL = ["--data", str(DATA), "--device", "cpu", "--train.no-tensorboard", "--steps", "2"]
SMALL += ["--model.d-model", "16", "--model.n-layers", "2", "--model.n-heads", "2"]
SMALL += ["--model.context", "16", "--train.eval-sequences", "2"]
CHOSE = "no rate is given, so chosen from measured runs: optim.lr "


@pytest.fixture
def plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """The configuration of a command line, and what it says of it."""
    monkeypatch.setattr("spherelm.training.report.plan.measure_speed", lambda *given: 1.0)

    def of(*words: str) -> tuple[dict[str, Any], str]:
        assert main(["train", "--out", str(tmp_path / "plan"), "--dry-run", "--json", *words]) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out)["config"], shown.err

    return of


def measured_otherwise(monkeypatch: pytest.MonkeyPatch, lr: float) -> None:
    """As if another version had measured other rates."""

    def settings() -> list[Setting]:
        archs = [presets.get(f"{arch}-nano") for arch in presets.ARCHS]
        return gather((override(run, {"optim.lr": lr}), "page", 2.0) for run in archs)

    monkeypatch.setattr(rule, "measured", settings)


def test_it_is_said_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), *SMALL]) == 0
    run = RunDir(out).read_config()
    made = rule.recommend(run)
    said = capsys.readouterr().err.splitlines()[: len(made.lines)]
    assert tuple(said) == made.lines
    first, second = said[:2]
    assert first.startswith(f"{CHOSE}{run.optim.lr:g}, ")
    assert second.startswith("measured with 4 layers of width 64 in context 256")
    assert "of the tokens a step" in second
    assert "a guess there (docs/results/width.md)" in second
    assert run == made.run


@pytest.mark.parametrize("arch", presets.ARCHS)
def test_each_architecture_has_its_own(arch: str, plan: Any) -> None:
    config, said = plan("--model.arch", arch, "--data", str(DATA))
    nano = to_dict(presets.get(f"{arch}-nano"))
    assert said.startswith(CHOSE)
    optim, theirs = config["optim"], nano["optim"]
    assert theirs["lr"] / 2 < optim["lr"] <= theirs["lr"]  # a parabola through its sweep
    for name in ("schedule", "warmup_steps", "weight_decay", "beta2"):
        assert optim[name] == theirs[name]
    for name in ("alpha_attn", "alpha_mlp", "s_z"):
        assert config["model"][name] == nano["model"][name]
    stds = [of["model"].get("init_std", 0) for of in (config, nano)]
    assert stds[0] == pytest.approx(stds[1], rel=1e-3)  # three digits


@pytest.mark.parametrize("arm", ["gpt", "ngpt"])
def test_nothing_of_nano_is_left_in_a_larger_run(
    arm: str, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for its steps and batch, which are given here."""
    point = Point(arm, 92).config()
    monkeypatch.setattr(rule, "measured", lambda: gather([(point, "page", 3.6)]))
    words = f"--model.arch {arm} --model.d-model 512 --model.n-layers 8 --model.n-heads 8"
    words += " --context 4096 --steps 1404 --batch-size 16 --model.vocab-size 16384"
    config, said = plan(*words.split())
    assert "(the only rate tried with these values); this run is like those (page)" in said
    wanted = to_dict(point)
    assert config["optim"] == wanted["optim"]
    if arm == "gpt":
        std = wanted["model"].pop("init_std")
        assert config["model"].pop("init_std") == pytest.approx(std, rel=2e-3)  # three digits
    assert config["model"] == wanted["model"]


def test_the_documentation_shows_what_is_said(plan: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
    section = page.partition("## Without a rate")[2]
    command, shown = (section.split("```")[i].partition("\n")[2] for i in (1, 3))
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:6] == ["spherelm", "train", "--data", "tokens", "--out", "runs/mine"]
    assert plan(*words[6:])[1] == shown


def test_the_help_has_the_defaults_in_force(plan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rate = plan("--data", str(DATA))[0]["optim"]["lr"]
    for words, default in (([], rate), (["--preset", "nano"], 0.004)):
        with pytest.raises(SystemExit):
            main(["train", "--help", *words])
        text = " ".join(capsys.readouterr().out.split())
        assert f"rate of the run. (default: {default:g})" in text


def test_whatever_is_given_wins(tmp_path: Path, plan: Any) -> None:
    config, said = plan("--optim.schedule", "wsd", "--model.s-z.init", "3", "--data", str(DATA))
    assert said.startswith(CHOSE)
    assert "optim.schedule" not in said.splitlines()[0]
    assert "another optim.schedule: a guess" in said
    assert (config["optim"]["schedule"], config["model"]["s_z"]["init"]) == ("wsd", 3)
    toml = tmp_path / "mine.toml"
    toml.write_text("[optim]\nwarmup_steps = 7\n[train]\nsteps = 50\n")
    config, said = plan("--config", str(toml), "--optim.beta2=0.9", "--data", str(DATA))
    assert said.startswith(CHOSE)
    assert (config["optim"]["warmup_steps"], config["optim"]["beta2"]) == (7, 0.9)


def test_a_rate_that_is_given_leaves_all_else_to_the_preset(tmp_path: Path, plan: Any) -> None:
    toml = tmp_path / "mine.toml"
    toml.write_text('[model]\narch = "gpt"\n[optim]\nlr = 0.003\n')
    for words, preset in (
        (["--lr", "3e-3"], "ngpt-nano"),
        (["--optim.lr=3e-3", "--model.arch=gpt"], "gpt-nano"),
        (["--config", str(toml)], "gpt-nano"),
    ):
        config, said = plan(*words, "--data", str(DATA))
        run = presets.get(preset)
        assert said == ""
        assert config["optim"] == to_dict(run)["optim"] | {"lr": 0.003}
        assert config["model"] == to_dict(run)["model"]


def test_rates_of_kinds_follow_a_rate_that_a_tuned_model_is_given(
    tmp_path: Path, plan: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may have been chosen for the last run, and stand in its configuration as they are."""
    last = ["train", "--out", str(tmp_path / "last"), *SMALL, "--lr", "8e-3"]
    assert main([*last, "--optim.input-lr", "16e-3", "--optim.factor-lr", "2e-3"]) == 0
    capsys.readouterr()
    words = ["--init-from", str(tmp_path / "last"), "--data", str(DATA)]
    rates = ("lr", "input_lr", "factor_lr")

    def found(*more: str) -> tuple[list[float], str]:
        config, said = plan(*words, *more)
        return [config["optim"].get(name) for name in rates], said

    assert found() == ([8e-3, 16e-3, 2e-3], "")
    said = (
        "in proportion to the last run's optim.lr: optim.input_lr 0.001, optim.factor_lr 0.000125"
    )
    assert found("--lr", "5e-4") == ([5e-4, 1e-3, 1.25e-4], f"{said}\n")
    own, said = found("--lr", "5e-4", "--optim.input-lr", "3e-3")
    assert own == [5e-4, 3e-3, 1.25e-4]
    assert "input_lr" not in said
    assert found("--preset", "ngpt-nano", "--lr", "5e-4") == ([5e-4, None, None], "")


def test_muons_rate_of_a_preset_follows_a_rate_that_is_given(plan: Any) -> None:
    words = ["--preset", "ngpt-nano-muon", "--data", str(DATA), "--lr", "2e-3"]
    config, said = plan(*words)
    assert config["optim"]["muon_lr"] == 4e-3
    assert said == "in proportion to the preset's optim.lr: optim.muon_lr 0.004\n"
    config, said = plan(*words, "--optim.muon-lr", "1e-2")
    assert (config["optim"]["muon_lr"], said) == (1e-2, "")


def test_the_values_of_a_preset_win(plan: Any) -> None:
    for words, preset in (
        (["--preset", "nano"], "ngpt-nano"),
        (["--preset=gpt-debug"], "gpt-debug"),
        (["--preset", "ngpt-small", "--context", "64", "--steps", "20"], "ngpt-small"),
    ):
        config, said = plan(*words, "--data", str(DATA))
        assert CHOSE not in said
        assert config["optim"] == to_dict(presets.get(preset))["optim"]


@pytest.mark.parametrize("named", ["nothing", "file"])
def test_a_run_that_is_gone_on_with_keeps_its_values(
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also with more steps, and where other rates were measured meanwhile."""
    toml = tmp_path / "mine.toml"
    toml.write_text("[train]\nlog_every = 1\n")
    argv = ["train", "--out", str(tmp_path / "run"), *SMALL, "--resume", "auto"]
    argv += ["--config", str(toml)] if named == "file" else []
    assert main(argv) == 0
    before = RunDir(tmp_path / "run").read_config()
    assert CHOSE in capsys.readouterr().err
    measured_otherwise(monkeypatch, 0.5)
    assert main([*argv, "--steps", "3"]) == 0
    said = capsys.readouterr().err
    assert CHOSE not in said
    assert "resuming from" in said
    after = RunDir(tmp_path / "run").read_config()
    assert after == override(before, {"train.steps": 3})
    assert main([word for word in argv if word not in ("--resume", "auto")] + ["--force"]) == 0
    assert f"{CHOSE}0.5" in capsys.readouterr().err  # a new run


def test_rates_that_another_rate_does_not_move_are_told(tmp_path: Path, plan: Any) -> None:
    """Else a run that goes on with a hundredth of the rate would have E_input's as it was."""
    file = tmp_path / "file.toml"
    file.write_text("[optim]\nlr = 0.01\ninput_lr = 0.02\nfactor_lr = 0.005\n")
    words = ["--data", str(DATA), "--config", str(file), "--lr", "1e-4"]
    config, said = plan(*words)
    assert "--lr sets 0.0001 in place of 0.01, but not optim.input_lr 0.02, " in said
    assert config["optim"]["input_lr"] == 0.02
    assert "but not optim.input_lr 0.02\n" in plan(*words, "--optim.factor-lr", "5e-3")[1]
    for quiet in ([*words[:-1], "1e-2"], words[:-2]):
        assert "but not" not in plan(*quiet)[1]
