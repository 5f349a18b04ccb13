"""Every item at nano, as a person would run it: minutes, on the built-in corpus."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.paper import registry, sizes
from tests.reproduce.form import check_form

LIMIT = 600.0
"""Seconds by the clock that an item may take on two CPU cores with nothing else to do."""


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.NAMES)
def test_an_item_completes_at_nano(name: str, tmp_path: Path) -> None:
    began = time.monotonic()
    out = tmp_path / "out"
    assert main(["reproduce", name, "--size", "nano", "--out", str(out)]) == 0
    assert time.monotonic() - began < LIMIT
    check_form(out / name, name, sizes.get("nano"))
