"""`bench rounding` counts what was planted, and speaks of a run by its name once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from spherelm import ModelConfig, Transformer
from spherelm.bench.rounding import shares_of
from spherelm.cli import main
from spherelm.data.loader import Batch
from spherelm.model.config import Arch
from spherelm.ops.choose import Choice


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_planted_zeros_are_counted(arch: Arch) -> None:
    """The rows of one W_o have one number other than zero: 31 of 32 are, in one layer of two."""
    torch.manual_seed(0)
    config = ModelConfig(arch=arch, vocab_size=61, d_model=32, n_layers=2, n_heads=2, context=16)
    model = Transformer(config, Choice(kernels="reference", fp8=True))
    with torch.no_grad():
        model.layers[1].attention.W_o.copy_(torch.eye(32))
    tokens = torch.randint(61, (2, 16))
    shares = shares_of(model, Batch(tokens, tokens.roll(-1, 1), None), "x")
    found = {(s.product, s.operand): s for s in shares}
    assert len(found) == len(shares) == 4 * 3
    planted = found["W_o", "matrix"]
    assert planted.zero_worst == 31 / 32
    assert planted.zero == pytest.approx(31 / 64, abs=2e-3)
    assert all(s.zero < 0.1 for s in shares if s is not planted)
    assert all(s.largest == 0 for s in shares if arch == "ngpt")


def test_a_run_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", "--preset", "ngpt-debug", "--out", out, "--steps", "2"]) == 0
    capsys.readouterr()
    command = ["bench", "rounding", out, "--sequences", "1", "--device", "cpu"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.count("W_u, W_nu") == 3
    assert printed.replace("\n", "").replace(" ", "").count(out) == 1
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rounding"]
    assert {s["model"] for s in found} == {out}
