"""What an earlier version wrote is read by this one, and computes the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from spherelm.config import RunConfig
from spherelm.data.open import open_dataset
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.generation.text import encode_prompt, generate_text
from spherelm.runs.run_dir import RunDir
from spherelm.saved import find_saved, load_model
from spherelm.training.loop import train

HERE = Path(__file__).parent
EXPECTED: dict[str, Any] = json.loads((HERE / "expected.json").read_text())
TOKENS = torch.tensor([EXPECTED["tokens"]])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
"""Another version of torch may add in another order; a model misread is off by far more."""


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_it_is_read_and_computes_the_same(name: str) -> None:
    expected = EXPECTED["models"][name]
    model, tokenizer, config = load_model(HERE / name)
    assert tokenizer.name == "bytes"
    assert (config.model.d_model, config.train.steps, config.optim.lr) == (16, 40, 0.02)
    assert find_saved(HERE / name).step == 40
    with torch.no_grad():
        logits = model(TOKENS)[0, -2:, 97:122]
        loss = model.loss(TOKENS[:, :-1], TOKENS[:, 1:]).item()
    torch.testing.assert_close(logits, torch.tensor(expected["logits"]), **CLOSE)
    assert loss == pytest.approx(expected["loss"], rel=1e-5)
    (text,) = generate_text(
        Engine(model),
        tokenizer,
        [encode_prompt(tokenizer, EXPECTED["prompt"])],
        max_new_tokens=12,
        sampling=Sampling(temperature=0),
    )
    assert text == expected["text"]


@pytest.mark.parametrize("name", EXPECTED["resumed"])
def test_a_run_goes_on(name: str, tmp_path: Path) -> None:
    """With its moments, its place in the data and its random state: else the loss is another."""
    shutil.copytree(HERE / name, tmp_path / name)
    before = (tmp_path / name / "metrics.jsonl").read_text()
    config = RunDir(tmp_path / name).read_config()
    train(longer(config), open_dataset(HERE / "data"), tmp_path / name, resume="strict")
    after = (tmp_path / name / "metrics.jsonl").read_text()
    assert after.startswith(before)
    (line,) = after.removeprefix(before).splitlines()
    measured = {field: json.loads(line)[field] for field in EXPECTED["resumed"][name]}
    assert measured == pytest.approx(EXPECTED["resumed"][name], rel=1e-5)


def longer(config: RunConfig) -> RunConfig:
    return replace(config, train=replace(config.train, steps=config.train.steps + 1))


@pytest.mark.parametrize("name", ["gpt-export", "ngpt-export", "ngpt-folded"])
def test_transformers_reads_an_export(name: str) -> None:
    """With today's classes, for those that lay beside it are its own."""
    transformers = pytest.importorskip("transformers")
    import spherelm.hf.register  # noqa: F401

    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / name)
    with torch.no_grad():
        logits = model(TOKENS).logits[0, -2:, 97:122]
    torch.testing.assert_close(logits, torch.tensor(EXPECTED["models"][name]["logits"]), **CLOSE)
