"""What a run folder holds is checked before it is gone on with: named, mended where it can be."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

from spherelm import durable, records
from spherelm.cli import main
from spherelm.config import RunConfig
from spherelm.config_io import override, to_toml
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.hf.export import export_to_hf
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir
from spherelm.training.loop import train
from spherelm.training.report.reporter import Moment, Reporter
from tests.saved_runs import change_state
from tests.training.conftest import flags, tiny
from tests.training.same_run import assert_same_run, tensors


class Notes(Reporter):
    """Keeps what a run has to say."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Twelve steps, with checkpoints at 8 and 12."""
    from spherelm.data.open import open_dataset

    out = tmp_path_factory.mktemp("finished") / "run"
    train(tiny("ngpt"), open_dataset(corpus), out)
    return out


@pytest.fixture
def run(tmp_path: Path, finished: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def resumed(out: Path, dataset: TokenDataset, **fields: object) -> list[str]:
    notes = Notes()
    train(override(tiny("ngpt"), fields), dataset, out, resume="auto", reporter=notes)
    return notes.said


def change_line(file: Path, number: int, old: bytes, new: bytes) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    file.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (b'"loss": ', b'"loss": 1', "line 10 is damaged"),
        (b'"seal"', b'"meal"', "line 10 is damaged"),
        (b"{", b"[", "line 10 is damaged"),
        (b"\n", b" ", "line 10 is damaged"),
    ],
)
def test_a_damaged_line_is_named_and_written_again(
    finished: Path, run: Path, dataset: TokenDataset, old: bytes, new: bytes, wrong: str
) -> None:
    metrics = run / "metrics.jsonl"
    change_line(metrics, 10, old, new)
    with pytest.raises(records.Damaged, match=rf"metrics.jsonl is damaged: {wrong}"):
        train(tiny("ngpt"), dataset, run, resume="strict")
    with pytest.raises(records.Damaged, match=r"metrics.jsonl is damaged: line 10 is damaged"):
        read_metrics(metrics)
    said = resumed(run, dataset)
    assert said[0] == f"{metrics}: {wrong}; going back to step_8 to write it again"
    assert_same_run(finished, run)


class Stops(Reporter):
    """Ctrl-C after a step."""

    def stepped(self, moment: Moment) -> None:
        if moment.step == 9:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_went_back_and_was_stopped_names_what_it_saved(
    finished: Path, run: Path, dataset: TokenDataset
) -> None:
    """The checkpoint of a later step, from before, is still there."""
    change_line(run / "metrics.jsonl", 11, b"{", b"[")
    stopped = train(tiny("ngpt"), dataset, run, resume="auto", reporter=Stops())
    assert 8 < stopped.step < 12
    assert stopped.checkpoint == run / "checkpoints" / f"step_{stopped.step}"
    assert (run / "checkpoints" / "step_12").is_dir()
    resumed(run, dataset)
    assert_same_run(finished, run)


def test_missing_lines_are_named_and_written_again(
    finished: Path, run: Path, dataset: TokenDataset
) -> None:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    for kept, missing in (([*lines[:9], *lines[10:]], 10), (lines[:10], 11)):
        metrics.write_bytes(b"".join(kept))
        with pytest.raises(records.Damaged, match=f"the line of step {missing} is missing"):
            export_to_hf(run, run.with_name("hf"))  # its card would lack losses
        said = resumed(run, dataset)
        assert f"metrics.jsonl: the line of step {missing} is missing; going back" in said[0]
        assert_same_run(finished, run)


def test_a_line_before_all_checkpoints_is_lost_alone_and_that_is_said(
    finished: Path, run: Path, dataset: TokenDataset
) -> None:
    change_line(run / "metrics.jsonl", 3, b'"loss": ', b'"loss": 1')
    change_line(run / "speed.jsonl", 5, b'"seconds": ', b'"seconds": 1')
    said = resumed(run, dataset)
    assert f"{run}/metrics.jsonl: line 3 is damaged, and cannot be written again" in said
    assert f"{run}/speed.jsonl: line 5 is damaged, and cannot be written again" in said
    assert f"resuming from {run}/checkpoints/step_12" in said
    whole = (finished / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    whole[2] = records.line({"step": 3, "lost": True}).encode()
    assert (run / "metrics.jsonl").read_bytes() == b"".join(whole)
    assert len(read_metrics(run / "metrics.jsonl")) == len(read_metrics(run / "speed.jsonl")) == 11
    assert resumed(run, dataset) == [f"resuming from {run}/checkpoints/step_12"]


def test_where_no_checkpoint_is_sound_nothing_is_touched(run: Path, dataset: TokenDataset) -> None:
    for step in (8, 12):
        (run / "checkpoints" / f"step_{step}" / "manifest.json").write_text("[]")
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=r"step_12 is damaged: manifest.json: .* start over"):
        resumed(run, dataset)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


def test_a_run_from_before_there_were_seals_goes_on(
    finished: Path, run: Path, dataset: TokenDataset
) -> None:
    for file in ("metrics.jsonl", "speed.jsonl"):
        text = re.sub(r', "seal": "\w+"', "", (run / file).read_text())
        (run / file).write_text(text)
    durable.write_text(run / "config.toml", to_toml(tiny("ngpt")))
    shutil.rmtree(run / "checkpoints" / "step_12")
    checkpoint = run / "checkpoints" / "step_8"
    state = records.read(checkpoint / "state.json")
    del state["began"]
    durable.write_json(checkpoint / "state.json", state)
    change_state(checkpoint, sealed=False)
    assert resumed(run, dataset) == [f"resuming from {checkpoint}"]
    assert_same_run(finished, run)


# ------------------------------------------------------------------ the configuration


def test_a_changed_config_is_refused_unless_it_is_meant(run: Path, dataset: TokenDataset) -> None:
    config = run / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("steps = 12", "steps = 13"))
    with pytest.raises(UserError, match=r"^\S+/config.toml is damaged: .* remove its last line"):
        resumed(run, dataset)
    meant = "".join(config.read_text().splitlines(keepends=True)[:-1])
    config.write_text(meant)
    assert main(["train", "--out", str(run), "--resume", "auto", "--data", str(dataset.path)]) == 0
    assert len(read_metrics(run / "metrics.jsonl")) == 13
    assert config.read_text() != meant, "the seal is back"


def test_command_config_and_checkpoint_must_agree(run: Path, dataset: TokenDataset) -> None:
    with pytest.raises(UserError, match=r"cannot resume with optim.lr = 0.5: the run began with"):
        resumed(run, dataset, **{"optim.lr": 0.5})
    checkpoint = run / "checkpoints" / "step_12"
    config = records.read(checkpoint / "state.json")["config"]
    change_state(checkpoint, config={**config, "optim": {**config["optim"], "lr": 0.5}})
    with pytest.raises(UserError, match=r"cannot resume with optim.lr = 0.01: the run began with"):
        resumed(run, dataset)
    change_state(checkpoint, config=config)
    with pytest.raises(UserError, match=r"= 8: the run is at step 12; give --steps 12 or"):
        resumed(run, dataset, **{"train.steps": 8})
    assert RunDir(run).read_config() == tiny("ngpt")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"random": []}, "'random' cannot be"),
        ({"random": {"cpu": "x"}}, "no generator has such a state"),
        ({"loader": {}}, "it has no 'consumed'"),
        ({"config": 3}, "'config' cannot be 3"),
        ({"config": {"model": {"wings": 2}}}, "another version of spherelm: unknown key"),
        ({"began": "x"}, "'began' cannot be 'x'"),
    ],
)
def test_a_state_that_cannot_be_ours_is_named(
    run: Path, dataset: TokenDataset, changes: dict[str, object], message: str
) -> None:
    change_state(run / "checkpoints" / "step_12", **changes)
    with pytest.raises(UserError, match=rf"step_12/state.json .*{message}"):
        resumed(run, dataset)


def test_an_extended_run_says_so(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = ["train", "--out", str(run), "--data", str(corpus), "--resume", "auto"]
    assert main([*resume, "--steps", "16"]) == 0
    assert RunDir(run).read_config().train.steps == 16
    capsys.readouterr()
    assert main(resume) == 0  # knows of the 16, and does nothing
    said = capsys.readouterr().err
    assert "all 16 steps were taken before; for more, give --steps N" in said
    assert "finished" not in said
    assert len(read_metrics(run / "metrics.jsonl")) == 16


# ------------------------------------------------------------------ ordinary ways


def test_data_without_validation_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spherelm.data.prepare import PrepareConfig, prepare
    from tests.corpus import sentences

    (tmp_path / "text.txt").write_text(sentences(500))
    data = tmp_path / "data"
    prepare(PrepareConfig((str(tmp_path / "text.txt"),), data, val_fraction=0.0, workers=1))
    assert main(flags(tmp_path / "run", data)) == 0
    assert "finished: saved" in (said := capsys.readouterr().err)
    assert "has no validation part" in said
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines if "s_z" in line] == [4, 8, 12]
    assert not any("val_loss" in line for line in lines)
    argv = ["compare", "--preset", "debug", "--data", str(data), "--out", str(tmp_path / "both")]
    assert main(argv) == 2
    assert "has no validation part, whose loss is compared" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_an_imported_run_is_trained_on_and_resumes_to_the_bit(
    tmp_path: Path, run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hf, whole, cut = tmp_path / "hf", tmp_path / "whole", tmp_path / "cut"
    assert main(["export", str(run), "--out", str(hf)]) == 0
    assert main(["import", str(hf), "--out", str(whole)]) == 0
    shutil.copytree(whole, cut)
    argv = ["--data", str(corpus), "--resume", "auto", "--steps", "20", "--train.keep-last", "9"]
    assert main(["train", "--out", str(whole), *argv]) == 0
    assert [line["step"] for line in read_metrics(whole / "metrics.jsonl")] == [*range(13, 21)]
    assert main(["train", "--out", str(cut), *argv]) == 0
    shutil.rmtree(cut / "checkpoints" / "step_20")
    assert main(["train", "--out", str(cut), *argv]) == 0
    assert "step_16" in capsys.readouterr().err
    assert (whole / "metrics.jsonl").read_bytes() == (cut / "metrics.jsonl").read_bytes()
    a, b = (tensors(out, 20) for out in (whole, cut))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("ids", [None, 300], ids=["bytes", "bpe"])
def test_an_imported_run_takes_data_of_the_tokenizer_that_transformers_saved(
    ids: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As examples/train_with_transformers.py does: the same ids, in a file that is not the same."""
    transformers = pytest.importorskip("transformers")
    from spherelm.data.prepare import PrepareConfig, prepare
    from tests.corpus import sentences

    text, data, hf, saved, back = (tmp_path / n for n in ("t.txt", "data", "hf", "saved", "back"))
    text.write_text(sentences(500))
    prepare(PrepareConfig((str(text),), data, train_tokenizer=ids, val_fraction=0.2, workers=1))
    assert main(flags(tmp_path / "run", data, train__steps=2)) == 0
    assert main(["export", str(tmp_path / "run"), "--out", str(hf)]) == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(hf, trust_remote_code=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(hf)
    tokenizer(["one", "of two texts"], padding=True, truncation=True, max_length=2)  # is kept
    model.save_pretrained(saved)
    tokenizer.save_pretrained(saved)
    assert '"padding": {' in (saved / "tokenizer.json").read_text()
    assert main(["import", str(saved), "--out", str(back)]) == 0
    assert main(["eval", str(back), "--data", str(data), "--device", "cpu"]) == 0
    argv = ["train", "--out", str(back), "--resume", "auto", "--steps", "4", "--device", "cpu"]
    assert main([*argv, "--data", str(data)]) == 0, capsys.readouterr().err


def test_an_imported_run_refuses_data_of_another_tokenizer(
    tmp_path: Path, run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers")
    from spherelm.data.prepare import PrepareConfig, prepare
    from spherelm.data.tokenizer_library import train_tokenizer
    from tests.corpus import sentences

    hf, back, other = tmp_path / "hf", tmp_path / "back", tmp_path / "other"
    assert main(["export", str(run), "--out", str(hf)]) == 0
    assert main(["import", str(hf), "--out", str(back)]) == 0
    train_tokenizer(iter([sentences(100)]), 257).save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text(sentences(500))
    text, tokenizer = str(tmp_path / "text.txt"), str(tmp_path / "tokenizer")
    prepare(PrepareConfig((text,), other, tokenizer=tokenizer, val_fraction=0.2, workers=1))
    argv = ["train", "--out", str(back), "--resume", "auto", "--steps", "20"]
    assert main([*argv, "--data", str(other)]) == 2
    assert f"{other} was not made by the tokenizer of {back} (bytes)" in capsys.readouterr().err


def test_a_presets_warmup_is_scaled_to_a_short_run(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, toml = tmp_path / "run", tmp_path / "short.toml"
    argv = ["train", "--preset", "gpt-nano", "--data", str(corpus), "--dry-run", "--json"]
    argv += ["--out", str(out), "--model.context", "8", "--train.batch-size", "2"]

    def plan(*more: str) -> RunConfig:
        assert main([*argv, *more]) == 0
        from spherelm.config_io import from_dict

        return from_dict(RunConfig, json.loads(capsys.readouterr().out)["config"])

    preset = plan()
    steps, warmup = preset.train.steps, preset.optim.warmup_steps
    assert 8 < warmup < steps
    short = plan("--steps", "8")
    assert short.optim.warmup_steps == round(8 * warmup / steps)
    toml.write_text("[train]\nsteps = 8\n")
    assert plan("--config", str(toml)) == short
    assert plan("--steps", str(warmup + 1)).optim.warmup_steps == warmup
    assert main([*argv, "--steps", "8", "--optim.warmup-steps", "8"]) == 2
    assert "optim.warmup_steps must be below train.steps = 8" in capsys.readouterr().err
    toml.write_text(f"[optim]\nwarmup_steps = {warmup}\n")
    assert main([*argv, "--steps", "8", "--config", str(toml)]) == 2
