"""`spherelm presets`: the table of all presets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from spherelm import presets
from spherelm.cli import main
from spherelm.model.transformer import Transformer


def test_the_table_has_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name in presets.names())
    assert "time" not in out


def test_the_numbers_are_those_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["presets"]
    assert list(rows) == presets.names()
    for name in ("gpt-nano", "ngpt-nano"):
        run = presets.get(name)
        parameters = sum(p.numel() for p in Transformer(run.model).parameters())
        assert rows[name]["parameters"] == parameters
        assert rows[name]["tokens"] == run.train.steps * run.train.batch_size * run.model.context
    assert rows["ngpt-0.5b-4k"]["context"] == 4096
    assert "seconds" not in rows["ngpt-nano"]


def test_it_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from spherelm.cli import main; main(['presets']); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_time_is_measured_here_or_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from spherelm.training.report import plan

    # A machine on which nothing larger than nano could be measured within seconds.
    limit = plan.flops_to_measure(presets.get("ngpt-nano")) * 1.5
    monkeypatch.setattr(plan, "product_speed", lambda device: limit / (15 * 0.25))
    assert main(["presets", "--time", "--device", "cpu", "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert result["device"] == "cpu"
    assert set(said.err.splitlines()) == {
        f"timing {arch}-{size}" for arch in ("gpt", "ngpt") for size in ("debug", *presets.TUNED)
    }
    for name, row in result["presets"].items():
        if name.endswith(("debug", "nano", "nano-muon")):
            assert row["seconds"] == pytest.approx(row["tokens"] / row["tokens_per_second"])
            assert row["seconds"] > 0
        else:
            assert row["seconds"] is row["tokens_per_second"] is None


def test_the_speed_of_products_is_that_of_a_machine() -> None:
    import torch

    from spherelm.training.report.plan import product_speed

    assert 1e8 < product_speed(torch.device("cpu"), size=256) < 1e16
