"""The front of the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spherelm import __version__, presets
from spherelm.cli import VERBS, main
from spherelm.config_io import to_toml
from spherelm.errors import UserError
from spherelm.model.config import Arch
from spherelm.model.flops import count_parameters
from spherelm.training.failures import Diverged
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run


def test_help_is_instant_and_names_every_verb() -> None:
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "spherelm", "--help"], capture_output=True)
        seconds.append(time.perf_counter() - began)
    assert done.returncode == 0
    assert all(verb in done.stdout.decode() for verb in VERBS)
    if os.getloadavg()[0] < 2 * (os.cpu_count() or 1):  # a busy machine says nothing about us
        assert min(seconds) < 0.3


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from spherelm.cli import main; main(['--help']); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'tyro', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert main([verb, "--help"]) == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "train"])
def test_only_train_runs_in_several_processes(
    verb: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Under torchrun all would print, and write the same files; the first one says so."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert main([verb, "x", "--json"]) == 2
        said.append(capfd.readouterr())
    assert said[0].err.startswith(f"spherelm: {verb} runs in one process, not in 2: start it")
    assert said[0].err.count("\n") == 1
    assert (said[0].out, *said[1]) == ("", "", "")
    monkeypatch.setenv("WORLD_SIZE", "1")  # torchrun with one process is no reason
    monkeypatch.setenv("RANK", "0")
    main([verb, "--no-such-option"])
    assert "runs in one process" not in capfd.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"spherelm {__version__}\n"


def test_an_unknown_verb_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "spherelm: there is no verb 'trian'; did you mean 'train'?\n"


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("gpt-0.5b-1k", 468.2),
        ("gpt-1b-4k", 1025.7),
        ("ngpt-0.5b-8k", 468.4),
        ("ngpt-1b-1k", 1026.1),
    ],
)
def test_info_has_the_papers_parameters(
    preset: str, millions: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--preset", preset, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert int(report["parameters"] / 1e5) / 10 == millions  # the paper truncates
    assert report["flops_per_token"] > 6 * 0.9 * report["parameters"]


def test_info_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--preset", "ngpt-nano"]) == 0
    shown = capsys.readouterr().out
    assert "parameters" in shown
    assert "training memory" in shown


def test_info_of_a_runs_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text(to_toml(presets.get("gpt-small")))
    for given in (["--config", str(config)], ["--preset", "gpt-small"]):
        assert main(["info", *given, "--json"]) == 0
    file, preset = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert file == preset | {"preset": None}
    assert main(["info", "--config", "config.toml"]) == 2
    assert "cannot read the config config.toml" in capsys.readouterr().err
    assert main(["info", str(tmp_path)]) == 2
    assert f"did you mean --config {config}?" in capsys.readouterr().err


def test_info_by_gpus_of_a_file_is_of_that_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not of the presets for clusters with the file's fields in them."""
    file = tmp_path / "config.toml"
    file.write_text(to_toml(presets.get("gpt-small")))
    reports = []
    for given in (["--config", str(file)], ["--preset", "gpt-small"]):
        assert main(["info", *given, "--world-size", "1", "8", "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out)["memory_bytes_per_gpu"])
    assert reports[0] == {str(file): reports[1]["gpt-small"]}
    assert main(["info", "--preset", "nano", "--world-size", "1", "2"]) == 0  # some MiB
    assert "0.029" in capsys.readouterr().out
    assert main(["info", "--preset", "nano", "--world-size", "2", "1", "2"]) == 0
    assert capsys.readouterr().out.count("GPU") == 3  # the title's, and a column for each number


@pytest.mark.parametrize("arch", presets.ARCHS)
def test_info_of_a_short_file_is_of_what_train_makes_of_it(
    arch: Arch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the file's run is shorter than the warmup of nano."""
    file = tmp_path / "mine.toml"
    file.write_text(f'[model]\narch = "{arch}"\nn_layers = 3\n[train]\nsteps = 50\n')
    model = dataclasses.replace(presets.get("nano", arch).model, n_layers=3)
    for given in ([], ["--preset", f"{arch}-nano"]):
        assert main(["info", "--config", str(file), *given, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["arch"] == arch
        assert report["parameters"] == count_parameters(model).total


def test_info_takes_the_vocabulary_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(prepare_corpus(tmp_path, count=50))
    reports = []
    for more in ([], ["--data", data]):
        assert main(["info", "--preset", "ngpt-small", "--json", *more]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    preset, own = reports
    assert own["vocab_size"] == 257  # bytes, and the end of a document
    width = presets.get("ngpt-small").model.d_model
    fewer = preset["vocab_size"] - 257
    # Two rows of embeddings and one of s_z for every token.
    assert preset["parameters"] - own["parameters"] == fewer * (2 * width + 1)

    sizes = ["--world-size", "2", "--preset", "ngpt-small", "--json"]
    memory = []
    for more in ([], ["--data", data]):
        assert main(["info", *sizes, *more]) == 0
        memory.append(json.loads(capsys.readouterr().out)["memory_bytes_per_gpu"]["ngpt-small"])
    assert memory[1]["2"] < memory[0]["2"]

    assert main(["info", "--preset", "ngpt-small", "--data", "nowhere"]) == 2
    assert "data folder nowhere does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (UserError("two\nlines \x1b[31m"), 2, r"two lines \x1b[31m"),
        (Diverged("the loss is nan"), 3, "the loss is nan"),
        (MemoryError(), 2, "there is not enough memory for this"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"),
            2,
            "there is not enough memory for this: [enforce fail] DefaultCPUAllocator: "
            "not enough memory",
        ),
        (
            RuntimeError("can't allocate memory: you tried to allocate 3221225472 bytes."),
            2,
            "there is not enough memory for this: 3.0 GiB more were asked for",
        ),
        (
            RuntimeError("CUDA out of memory. Tried to\nand more"),
            2,
            "there is not enough memory for this: CUDA out of memory. Tried to",
        ),
        (
            OSError(28, "No space left on device"),
            2,
            "cannot read or write: No space left on device",
        ),
        (OSError(28, "No space left", "x" * 200), 2, f"{'x' * 117}...: No space left"),
    ],
)
def test_whatever_a_user_can_cause_is_one_line_and_a_status(
    error: BaseException,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr("spherelm.cli.info.main", fail)
    assert main(["info"]) == status
    assert capsys.readouterr().err == f"spherelm: {says}\n"


def test_what_nobody_can_cause_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("spherelm.cli.info.main", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["info"])


def test_a_wrong_flag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--preste", "ngpt-nano"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "there is no option --preste; did you mean --preset?" in error


@pytest.mark.parametrize("words", [["--model.qk-norm=false"], ["--model.qk-norm", "False"]])
def test_a_switch_with_a_value_gets_a_hint(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", "nowhere", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--model.qk-norm" in error
    assert "did you mean --model.no-qk-norm?" in error


def test_a_flag_like_no_other_gets_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--out", "nowhere", "--zzz=3"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "there is no option --zzz=3 (" in error


def test_the_vocabulary_that_is_asked_for_holds_also_where_it_is_the_presets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, toml = str(prepare_corpus(tmp_path, count=50)), tmp_path / "vocabulary.toml"
    size = presets.get("ngpt-small").model.vocab_size
    toml.write_text(f"[model]\nvocab_size = {size}\n")
    argv = ["train", "--preset", "small", "--data", data, "--out", str(tmp_path / "run")]
    argv += ["--model.context", "8", "--train.batch-size", "2", "--train.micro-batch-size", "2"]
    argv += ["--dry-run", "--json", "--device", "cpu", "--model.d-model", "16", "--model.n-heads=2"]
    for more, expected in (
        ([], 257),
        (["--model.vocab-size", str(size)], size),
        ([f"--model.vocab_size={size}"], size),
        (["--config", str(toml)], size),
        (["--config", str(toml), "--model.vocab-size", "300"], 300),
    ):
        assert main([*argv, *more]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["config"]["model"]["vocab_size"] == expected, more


@pytest.mark.parametrize(
    ("verb", "field"),
    [
        ("generate run", "--device"),
        ("eval run --text a.txt", "--device"),
        ("eval tasks run --tasks wsc273", "--device"),
        ("bench step --sizes debug", "--device"),
        ("train --preset debug --out new", "train.device"),
    ],
)
def test_a_device_that_is_not_there_is_called_as_it_was_given(
    verb: str,
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", byte_model())
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.setattr("spherelm.eval.harness.load_task", lambda task: None)
    assert main([*verb.split(), "--device", "nvidia"]) == 2
    error = capsys.readouterr().err
    assert f"{field} must be auto, cpu, cuda or mps, not 'nvidia'" in error
