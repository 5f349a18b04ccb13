"""The names that people type first: `spherelm.load`, `spherelm.train` and `spherelm.generate`."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import spherelm
from spherelm import api, presets, saved
from spherelm.cli import main
from spherelm.cli.generate import GenerateFlags
from spherelm.config_io import to_toml
from spherelm.data.open import open_dataset
from spherelm.errors import UserError
from spherelm.hf.export import export_to_hf
from spherelm.runs.run_dir import RunDir
from tests.saved_runs import byte_model, write_run

DATA = Path(__file__).parent / "compat" / "data"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", byte_model())


def tiny(preset: str = "ngpt-debug", steps: int = 2) -> spherelm.RunConfig:
    """A run of a second."""
    run = presets.get(preset)
    model = replace(run.model, d_model=16, n_layers=1, n_heads=2, context=16)
    train = replace(run.train, steps=steps, device="cpu", tensorboard=False, eval_sequences=2)
    return replace(run, model=model, train=train)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_importing_the_package_does_not_wait_for_torch() -> None:
    code = "import sys, spherelm; print('torch' in sys.modules, callable(spherelm.train))"
    assert run_python(code) == "False True"


def test_the_functions_are_what_is_called() -> None:
    """Also after the packages behind them were imported."""
    for form in ("import spherelm.training.loop, spherelm.generation.engine", "import spherelm"):
        names: dict[str, Any] = {}
        exec(form, names)
        package = names["spherelm"]
        assert package.train is api.train
        assert package.generate is api.generate
    with pytest.raises(UserError, match="a preset has a name, such as ngpt-nano, not 3"):
        spherelm.train(3, None, "nowhere")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a model is named by its folder, not 3"):
        spherelm.generate(3)  # type: ignore[arg-type]


def test_every_public_name_is_there() -> None:
    for name in spherelm.__all__:
        assert getattr(spherelm, name) is getattr(spherelm, name)
        assert name in dir(spherelm)
    with pytest.raises(AttributeError, match="no attribute 'wings'"):
        _ = spherelm.wings  # type: ignore[attr-defined]


def test_a_run_a_checkpoint_and_an_export_are_loaded(run: Path, tmp_path: Path) -> None:
    exported = export_to_hf(run, tmp_path / "hf")
    expected = byte_model()
    for path in (run, str(run), run / "checkpoints" / "step_7", exported):
        model, tokenizer, config = loaded = spherelm.load(path, device="cpu")
        assert (loaded.model, loaded.tokenizer, loaded.config) == (model, tokenizer, config)
        assert torch.equal(model.E_input, expected.E_input)
        assert tokenizer.name == "bytes"
        assert config.model == expected.config
        assert not model.training
    with pytest.raises(UserError, match="does not exist; give a run, a checkpoint or"):
        spherelm.load(tmp_path / "nowhere")


def test_text_is_that_of_the_command_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = spherelm.load(run, device="cpu")
    settings = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 3}
    text = spherelm.generate(loaded, "def", max_new_tokens=12, **settings)
    assert text
    assert text == spherelm.generate(str(run), "def", max_new_tokens=12, device="cpu", **settings)
    assert text != spherelm.generate(loaded, "def", max_new_tokens=12, **{**settings, "seed": 4})
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    main(["generate", str(run), "--prompt", "def", "--max-new-tokens=12", "--device=cpu", *flags])
    assert capsys.readouterr().out == f"def{text}\n"
    stop = text[4:6]
    assert spherelm.generate(loaded, "def", max_new_tokens=12, stop=[stop], **settings) == text[:4]
    with pytest.raises(UserError, match="prompt must be a text, not 3"):
        spherelm.generate(loaded, 3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="dtype must be one of auto, fp32, bf16, not 'float32'"):
        spherelm.generate(loaded, "def", dtype="float32")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"stop is a list of strings, such as \['def '\], not"):
        spherelm.generate(loaded, "def", stop="def ")
    with pytest.raises(UserError, match=r"^device must be auto, cpu, cuda or mps, not"):
        spherelm.load(run, device="toaster")


def test_what_generate_takes_is_called_as_on_the_command_line() -> None:
    flags = {field.name: field.default for field in fields(GenerateFlags)}
    taken = list(inspect.signature(spherelm.generate).parameters.values())[2:]
    assert {each.name: each.default for each in taken}.items() <= flags.items()
    assert "max_new_tokens" in {each.name for each in taken}
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_tokens'"):
        spherelm.generate("nowhere", max_tokens=12)  # type: ignore[call-arg]


def test_a_run_is_trained_shown_and_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    result = spherelm.train(tiny(steps=2), DATA, out)
    assert (result.step, result.finished) == (2, True)
    assert "step 2: validation loss" in capsys.readouterr().err
    assert RunDir(out).read_config().data.path == str(DATA)
    with pytest.raises(UserError, match="already holds a run"):
        spherelm.train(tiny(steps=3), DATA, out)
    assert spherelm.train(tiny(steps=3), open_dataset(DATA), str(out), resume="auto").step == 3
    assert spherelm.train(tiny(steps=1), DATA, out, force=True).step == 1
    assert spherelm.load(out, device="cpu").config == RunDir(out).read_config()


def test_a_script_hears_sigterm_again_after_a_run_that_it_stopped(tmp_path: Path) -> None:
    """The command exits then, and must not be disturbed; a script goes on."""
    before = signal.getsignal(signal.SIGTERM)

    def stop() -> None:
        while signal.getsignal(signal.SIGTERM) == before:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=stop)
    watching.start()
    run = replace(
        presets.get("ngpt-nano"), train=replace(presets.get("ngpt-nano").train, steps=5000)
    )
    result = api.train(run, None, tmp_path / "run")
    watching.join()
    assert result.stopped_by == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_configuration_is_a_preset_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data decides the size of the vocabulary, unless somebody has said it."""
    trained: list[spherelm.RunConfig] = []
    monkeypatch.setattr("spherelm.api.run_training", lambda run, *_, **__: trained.append(run))
    (tmp_path / "short.toml").write_text("[train]\nsteps = 700\n[data]\nwithin_documents = true\n")
    (tmp_path / "whole.toml").write_text(to_toml(presets.get("gpt-small")))
    for config in ("gpt-small", str(tmp_path / "short.toml"), tmp_path / "whole.toml"):
        spherelm.train(config, DATA, tmp_path / "run")
    preset, short, whole = trained
    assert preset.model == replace(presets.get("gpt-small").model, vocab_size=257)
    assert (short.train.steps, short.data.within_documents) == (700, True)
    assert short.model == spherelm.ModelConfig(vocab_size=257)
    assert whole.model == presets.get("gpt-small").model  # of 32000, which the file says
    spherelm.train(replace(tiny(), data=replace(tiny().data, path=str(DATA))), None, tmp_path)
    assert trained[-1].data.path == str(DATA)
    with pytest.raises(UserError, match="unknown preset 'huge'"):
        spherelm.train("huge", None, tmp_path / "run")
    with pytest.raises(UserError, match=r"cannot read the config .*gone.toml"):
        spherelm.train(tmp_path / "gone.toml", None, tmp_path / "run")


def test_a_model_that_moves_or_is_folded_needs_that_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(saved, "require_memory", lambda what, n, *where: asked.append(n))
    model = byte_model()
    count = sum(p.numel() for p in model.parameters())
    saved.to_device(model, torch.device("cpu"))
    saved.to_device(model, torch.device("cpu"), folded=torch.bfloat16)
    saved.to_device(model, torch.device("meta"), folded=torch.bfloat16)
    assert asked == [0, 2 * count, 4 * count + 2 * count]
