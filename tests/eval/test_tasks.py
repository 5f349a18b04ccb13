"""`spherelm eval tasks`: its report, its table, and what it says of a mistake."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from spherelm import __version__
from spherelm.cli import main
from spherelm.hf.export import export_to_hf
from tests.eval.task_files import write_task_files
from tests.saved_runs import byte_model, write_run

pytest.importorskip("lm_eval")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write_task_files(tmp_path / "data"))
    run = str(write_run(tmp_path / "run", byte_model()))
    out = tmp_path / "out"
    arguments = ["eval", "tasks", run, "--tasks", "wsc273,lambada_openai", "--data", data]
    options = ["--limit", "2", "--device", "cpu", "--out", str(out), "--json"]
    assert main([*arguments, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    (model,) = report["models"]
    assert model["tasks"]["wsc273"]["examples"] == 2
    assert model["average_accuracy"] is None
    environment = model["environment"]
    assert environment["checkpoint"] == next((tmp_path / "run" / "checkpoints").iterdir()).name
    assert (environment["dtype"], environment["batch_size"]) == ("float32", 16)
    assert environment["spherelm"] == __version__
    assert environment["torch"] == torch.__version__
    assert environment["lm_eval"] == version("lm_eval")
    assert "thread" in environment["device"]
    kept = (out / "answers.jsonl").read_text()
    assert main([*arguments, *options]) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert (out / "answers.jsonl").read_text() == kept
    assert json.loads((out / "tasks.json").read_text()) == report
    # Answers in another precision are other answers; those before are kept beside them.
    assert main([*arguments, *options, "--dtype", "bf16"]) == 0
    (other,) = json.loads(capsys.readouterr().out)["models"]
    assert other["environment"]["dtype"] == "bfloat16"
    both = (out / "answers.jsonl").read_text()
    assert both.startswith(kept)
    assert len(both) > 1.5 * len(kept)


def test_a_model_that_transformers_saved_in_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its answers are kept, too, as long as its configuration stays as it is."""
    data = str(write_task_files(tmp_path / "data"))
    hf = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    saved = tmp_path / "saved"
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(hf, trust_remote_code=True)
    theirs.save_pretrained(saved, max_shard_size="20KB")
    assert len(list(saved.glob("model-*.safetensors"))) > 1
    arguments = ["eval", "tasks", str(saved), "--tasks", "lambada_openai", "--data", data]
    arguments += ["--tokenizer", "bytes", "--device", "cpu", "--out", str(tmp_path / "out")]
    sizes = []
    for base in (10_000.0, 10_000.0, 100.0):
        config = json.loads((saved / "config.json").read_text())
        config["rope_parameters"]["rope_theta"] = base
        (saved / "config.json").write_text(json.dumps(config))
        assert main(arguments) == 0, capsys.readouterr().err
        sizes.append((tmp_path / "out" / "answers.jsonl").stat().st_size)
    assert sizes[0] == sizes[1]
    assert sizes[2] > 1.9 * sizes[0]


def test_several_models_in_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_task_files(tmp_path / "data")
    write_run(tmp_path / "one", byte_model())
    write_run(tmp_path / "two", byte_model(n_layers=1))
    arguments = ["eval", "tasks", "--tasks", "wsc273,lambada_openai", "--data", "data"]
    arguments += ["--limit", "2", "--device", "cpu", "--out", "out"]
    alone = []
    for run in ("one", "two"):
        assert main([*arguments[:2], run, *arguments[2:], "--json"]) == 0
        alone += json.loads(capsys.readouterr().out)["models"]
    assert main([*arguments[:2], "one", "two", *arguments[2:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == alone
    for columns in ("200", "44"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main([*arguments[:2], "one", "two", *arguments[2:]]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.split("\n"))) <= int(columns)
        for model in alone:
            assert f"{model['tasks']['lambada_openai']['perplexity']:.4f}" in shown
    assert main([*arguments[:2], "one", "missing", *arguments[2:]]) == 2
    said = capsys.readouterr()
    assert "missing" in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "nonsense"], "there is no task 'nonsense'"),
        (["--limit", "0"], "--limit must be a whole number of at least 1"),
        (["--data", "nowhere"], "cannot read the task file"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "tasks", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
