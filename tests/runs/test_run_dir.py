"""What a run says of itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spherelm import presets, records
from spherelm.runs.run_dir import RunDir, write_description


@pytest.mark.parametrize("program", ["/bin/spherelm", "/lib/python3/spherelm/__main__.py"])
def test_a_run_names_the_command_that_can_be_typed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """`python -m spherelm`, as torchrun has it, is `spherelm`."""
    monkeypatch.setattr(sys, "argv", [program, "train", "--steps", "5"])
    run_dir = RunDir(tmp_path)
    write_description(run_dir, presets.get("ngpt-debug"))
    assert records.read(run_dir.env)["command"] == ["spherelm", "train", "--steps", "5"]
