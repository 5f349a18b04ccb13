"""Mistakes of a user end in one line, status 2, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from spherelm.ops import flash4
from tests.corpus import prepare_corpus
from tests.processes import run
from tests.training.conftest import flags


def refused(argv: list[str], out: Path, log: Path) -> str:
    """Run a command that must be refused; returns its one line."""
    status, output = run(argv, log)
    assert status == 2, output
    assert output.count("\n") == 1, output
    assert not out.exists(), "something was written"
    return output


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model__d_model": 15}, "model.n_heads must divide model.d_model"),
        ({"model__d_model": 18}, "must be even"),
        ({"train__batch_size": 0}, "train.batch_size must be a whole number of at least 1"),
        ({"optim__lr": "nan"}, "optim.lr must be a finite number above 0"),
        ({"optim__weight_decay": 0.1}, "optim.weight_decay must be 0 for nGPT"),
        ({"optim__warmup_steps": 12}, "optim.warmup_steps must be below train.steps"),
        ({"train__device": "cuda:9"}, "train.device is cuda"),
        ({"train__device": "toaster"}, "train.device must be auto, cpu, cuda or mps"),
        ({"train__device": "meta"}, "train.device must be auto, cpu, cuda or mps"),
        ({"parallel__tensor": 2}, "start several with torchrun"),
        ({"model__vocab_size": 300, "model__context": 100000}, "too few for one context"),
        ({"model__vocab_size": 30}, "model.vocab_size is 30"),
        ({"train__stesp": 3}, "did you mean --train.steps"),
        ({"train__steps": "many"}, "--train.steps"),
        ({"train__attention": "slow"}, "--train.attention"),
        ({"train__attention": "fa4", "train__precision": "fp32"}, "use auto, efficient or math"),
    ],
)
def test_fields(tmp_path: Path, corpus: Path, fields: dict[str, object], message: str) -> None:
    out = tmp_path / "run"
    assert message in refused(flags(out, corpus, **fields), out, tmp_path / "log")


@pytest.mark.skipif(flash4.unavailable() is None, reason="this machine has FlashAttention 4")
def test_attention_that_is_not_here(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    line = refused(flags(out, corpus, train__attention="fa4"), out, tmp_path / "log")
    assert "attention fa4 is not available here" in line


def test_toml(tmp_path: Path, corpus: Path) -> None:
    out, toml = tmp_path / "run", tmp_path / "my.toml"
    argv = [*flags(out, corpus), "--config", str(toml)]
    assert "cannot read the config" in refused(argv, out, tmp_path / "log")
    toml.write_text("[model]\nd_modle = 32\n")
    line = refused(argv, out, tmp_path / "log")
    assert "my.toml: unknown key model.d_modle; did you mean 'd_model'?" in line
    toml.write_text("[model\n")
    assert "my.toml is not TOML" in refused(argv, out, tmp_path / "log")
    toml.write_text("[train]\nsteps = 3\n")
    without_steps = [word for word in argv if word != "--train.steps"]
    without_steps.remove("12")
    assert run(without_steps, tmp_path / "log")[0] == 0
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3


def test_data(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    line = refused(flags(out, tmp_path / "nowhere"), out, tmp_path / "log")
    assert "does not exist; name it with --data, or make it with `spherelm prepare`" in line
    line = refused(flags(out, tmp_path), out, tmp_path / "log")
    assert "holds no tokens" in line


def test_preset(tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = refused(["train", "--preset", "nanno", "--out", str(out)], out, tmp_path / "log")
    assert "unknown preset 'nanno'; did you mean 'ngpt-nano'?" in line


def test_a_corpus_of_another_vocabulary_on_resume(tmp_path: Path, corpus: Path) -> None:
    """More ids than the checkpoint has: the model could not read them."""
    pytest.importorskip("tokenizers")
    out = tmp_path / "run"
    assert run(flags(out, corpus), tmp_path / "log")[0] == 0
    before = (out / "metrics.jsonl").read_bytes()
    from spherelm.data.prepare import PrepareConfig, prepare

    prepare_corpus(tmp_path)
    other = tmp_path / "other"
    text = str(tmp_path / "text.txt")
    prepare(PrepareConfig((text,), other, train_tokenizer=300, val_fraction=0.2, workers=1))
    status, output = run([*flags(out, other), "--resume", "auto"], tmp_path / "log")
    assert status == 2, output
    assert output.count("\n") == 1
    assert "cannot resume with model.vocab_size" in output
    assert (out / "metrics.jsonl").read_bytes() == before


def test_dry_run_writes_nothing(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    status, output = run([*flags(out, corpus), "--dry-run"], tmp_path / "log")
    assert status == 0
    for name in ("parameters", "FLOPs per token", "memory", "expected time", "d_model = 16"):
        assert name in output
    assert not out.exists()
