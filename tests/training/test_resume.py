"""Interrupted and resumed is the same, to the bit, as never interrupted."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.errors import UserError
from spherelm.folders.kinds import OWNER
from spherelm.model.config import ScaleConfig
from spherelm.runs.run_dir import Claim, RunDir
from spherelm.training import loop
from spherelm.training.loop import train
from spherelm.training.report.reporter import Moment, Reporter
from spherelm.training.resume import check_same_run
from tests.corpus import prepare_corpus
from tests.processes import Spherelm, run
from tests.saved_runs import begin_run
from tests.training.conftest import flags, tiny
from tests.training.same_run import assert_same_run, stopped, tensors


@pytest.mark.parametrize("lost", [(8, 12), (12,)])
def test_resumed_equals_uninterrupted(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig, lost: tuple[int, ...]
) -> None:
    tiny_run = override(tiny_run, {"train.keep_last": 5})
    train(tiny_run, dataset, tmp_path / "whole")
    resumed = stopped(tmp_path / "whole", lost)
    assert train(tiny_run, dataset, resumed, resume="auto").finished
    assert_same_run(tmp_path / "whole", resumed)


class Draws(Reporter):
    """Somebody who draws random numbers while a run goes on, as dropout would."""

    def stepped(self, moment: Moment) -> None:
        torch.rand(1)


def test_random_numbers_go_on_where_they_were(tmp_path: Path, dataset: TokenDataset) -> None:
    run = override(tiny("ngpt"), {"train.keep_last": 5})
    train(run, dataset, tmp_path / "whole", reporter=Draws())
    train(run, dataset, stopped(tmp_path / "whole", [12]), resume="auto", reporter=Draws())
    states = {
        (name, step): json.loads(
            (tmp_path / name / "checkpoints" / f"step_{step}" / "state.json").read_text()
        )["random"]
        for name, step in (("whole", 8), ("whole", 12), ("resumed", 12))
    }
    assert states["whole", 12] == states["resumed", 12] != states["whole", 8]


def test_checkpoints_of_the_background_are_the_same(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    train(tiny_run, dataset, tmp_path / "plain")
    run = override(tiny_run, {"train.background_checkpoints": True})
    train(run, dataset, tmp_path / "background")
    for step in (8, 12):
        a, b = tensors(tmp_path / "plain", step), tensors(tmp_path / "background", step)
        assert all(torch.equal(a[name], b[name]) for name in a)
    shutil.rmtree(tmp_path / "background" / "checkpoints" / "step_12")
    train(run, dataset, tmp_path / "background", resume="auto")
    assert_same_run(tmp_path / "plain", tmp_path / "background")


def test_a_finished_run_resumed_does_nothing(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    first = train(tiny_run, dataset, tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    result = train(tiny_run, dataset, tmp_path, resume="auto")
    assert result.finished
    assert result == first
    assert result.step == 12
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_resume_auto_begins_where_there_is_nothing(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    assert train(tiny_run, dataset, tmp_path / "new", resume="auto").finished


def test_sigterm_saves_and_exits_with_0(tmp_path: Path, corpus: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    more = {"train__steps": 60, "train__checkpoint_every": 0, "train__eval_every": 20}
    assert run(flags(whole, corpus, **more), tmp_path / "log")[0] == 0
    process = Spherelm(flags(stopped, corpus, **more), tmp_path / "log")
    metrics = stopped / "metrics.jsonl"
    assert process.wait_until(lambda: metrics.exists() and metrics.stat().st_size > 500)
    process.kill(signal.SIGTERM)
    assert process.wait() == 0
    assert "continue with --resume auto" in process.output()
    (saved,) = (stopped / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step_"))
    assert 0 < step < 60
    assert len(metrics.read_text().splitlines()) == step
    assert run([*flags(stopped, corpus, **more), "--resume", "auto"], tmp_path / "log")[0] == 0
    a, b = tensors(whole, 60), tensors(stopped, 60)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert metrics.read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_resume_alone_reads_the_runs_own_config(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    assert run(flags(out, corpus), tmp_path / "log")[0] == 0
    shutil.rmtree(out / "checkpoints" / "step_12")
    before = (out / "metrics.jsonl").read_bytes()
    status, output = run(["train", "--out", str(out), "--resume", "auto"], tmp_path / "log")
    assert status == 0, output
    assert "resuming from" in output
    assert (out / "metrics.jsonl").read_bytes() == before


def test_a_run_that_is_to_end_elsewhere_says_so(tmp_path: Path, corpus: Path) -> None:
    """A preset named again without the --steps of the first time cuts the schedule short."""
    out = tmp_path / "run"
    first = ["train", "--preset", "debug", "--data", str(corpus), "--out", str(out)]
    again = [*first, "--resume", "auto"]
    for more in ([], ["--force", "--train.log-every", "9"]):  # nothing to say of a beginning
        status, output = run([*first, "--steps", "2", *more], tmp_path / "log")
        assert status == 0, output
        assert "ending at" not in output
    status, output = run([*again, "--steps", "4"], tmp_path / "log")
    assert status == 0, output
    assert "ending at step 4, not 2, and the schedule with it" in output
    assert "ending at" not in run([*again, "--steps", "4"], tmp_path / "log")[1]


def test_an_existing_run_is_not_overwritten(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    assert run(flags(out, corpus), tmp_path / "log")[0] == 0
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    status, output = run(flags(out, corpus), tmp_path / "log")
    assert status == 2
    assert output.count("\n") == 1
    assert "--resume auto" in output
    assert "--force" in output
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert run([*flags(out, corpus), "--force"], tmp_path / "log")[0] == 0


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for more in ([], ["--force"], ["--resume", "auto"]):
        status, output = run([*flags(tmp_path, corpus), *more], tmp_path.parent / "log")
        assert status == 2
        assert "holds thesis.tex, which `spherelm train` did not write" in output
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("model.d_model", 32), ("optim.lr", 0.5), ("train.batch_size", 2), ("train.seed", 7)],
)
def test_another_configuration_is_another_run(field: str, value: object) -> None:
    with pytest.raises(UserError, match=field):
        check_same_run(tiny("ngpt"), override(tiny("ngpt"), {field: value}))
    check_same_run(tiny("ngpt"), override(tiny("ngpt"), {"train.log_every": 3}))


def test_how_long_and_where_may_change() -> None:
    run = tiny("ngpt")
    for field, value in (
        ("train.steps", 99),
        ("train.micro_batch_size", 1),
        ("train.eval_every", 7),
        ("train.keep_last", 9),
        ("train.device", "cuda"),
        ("train.compile", True),
        ("parallel.tensor", 2),
        ("data.path", "moved"),
    ):
        check_same_run(run, override(run, {field: value}))


def test_a_run_that_begins_anew_leaves_nothing_of_the_old(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    begin_run(run_dir, tiny("gpt"))
    for old in (run_dir.metrics, run_dir.speed):
        old.write_text('{"step": 1}\n')
    for folder in (run_dir.checkpoints / "step_1", run_dir.tensorboard, run_dir.tokenizer):
        folder.mkdir(parents=True)
    with Claim(run_dir, resume="never", force=True) as claim:
        assert not claim.take()
        claim.create(tiny("ngpt"))
    assert {path.name for path in run_dir.root.iterdir()} == {
        *("checkpoints", "config.toml", "env.json", OWNER),
    }
    assert run_dir.read_config() == tiny("ngpt")
    assert not list(run_dir.checkpoints.iterdir())


def test_other_data_is_refused_on_resume(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    train(tiny_run, dataset, tmp_path / "run")
    other = open_dataset(prepare_corpus(tmp_path, seed=1))
    with pytest.raises(UserError, match=r"step_12 was trained on other data"):
        train(tiny_run, other, tmp_path / "run", resume="auto")


@pytest.mark.parametrize("there", ["a checkpoint", "no checkpoint", "a run begun meanwhile"])
def test_train_refuses_another_configuration_wherever_it_would_go_on(
    tmp_path: Path, dataset: TokenDataset, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """From Python, too, and also where nothing but config.toml says what the run began with."""
    run = override(tiny("ngpt"), {"train.steps": 2, "train.eval_every": 0})
    out = tmp_path / "run"
    if there == "a checkpoint":
        train(run, dataset, out)
    elif there == "no checkpoint":
        begin_run(RunDir(out), run)
    else:  # after the first look at the folder, and before it is held
        monkeypatch.setattr(loop, "check_fits", lambda *_: begin_run(RunDir(out), run))
    before = sorted(out.rglob("*"))
    for mode in ("auto", "strict"):
        with pytest.raises(UserError, match=r"cannot resume with optim.lr = 0.5: the run began"):
            train(override(run, {"optim.lr": 0.5}), dataset, out, resume=mode)  # type: ignore[arg-type]
        monkeypatch.undo()
    assert RunDir(out).read_config() == run
    assert there == "a run begun meanwhile" or sorted(out.rglob("*")) == before


def test_another_architecture_is_told_as_that() -> None:
    """And not by one of the fields that follow from it; a field that one lacks is unset there."""
    ngpt = presets.get("ngpt-debug")
    with pytest.raises(UserError, match=r"cannot resume with model.arch = gpt: the run began with"):
        check_same_run(ngpt, presets.get("gpt-debug"))
    plain = dataclasses.replace(ngpt, model=dataclasses.replace(ngpt.model, s_z=ScaleConfig()))
    with pytest.raises(UserError, match=r"with model.s_z.init = unset: the run began with 16.0;"):
        check_same_run(ngpt, plain)


def test_a_vocabulary_that_came_with_the_data_is_told_as_that() -> None:
    """A line that is given again without its --data has bytes for its tokens."""
    began = override(tiny("ngpt"), {"data.path": "tokens/bpe", "model.vocab_size": 600})
    again = override(began, {"data.path": None, "model.vocab_size": 257})
    with pytest.raises(UserError, match=r"257, that of the built-in corpus: .* the same --data"):
        check_same_run(began, again)
    with pytest.raises(UserError, match=r"vocab_size = 257: the run began with 600; leave it"):
        check_same_run(began, override(began, {"model.vocab_size": 257}))
