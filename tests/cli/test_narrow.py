"""What every verb prints fits 44 columns and plain ASCII: its table, its result, its mistakes."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.console import PLAIN
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run

COMMANDS = [
    "prepare text.txt --out new --tokenizer bytes --val-fraction 0.2",
    "eval one two --text text.txt short.txt --device cpu",
    "eval one two --text short.txt --device cpu",
    "eval one two --device cpu",
    "eval length one two --books books --lengths 16 32 64 --device cpu",
    "export one --out exported",
    "import exported --out imported",
    "presets",
    "info --preset nano",
    "info --world-size 1 8 64 256",
    "bench kernels --repeats 1 --tokens 8 --d-model 64 --device cpu",
    "generate one --prompt a --max-new-tokens 0 --device cpu",
    "reproduce scaling --list --only ngpt-4k-92m-linear-lr0.008-s0",
]
MISTAKES = ["eval nöwhere", "train --out x --öption", "info --preset größe", "prepare ← --out x"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("narrow")
    prepare_corpus(folder, count=400)
    write_run(folder / "one", byte_model())
    write_run(folder / "two", byte_model(arch="gpt"))
    (folder / "short.txt").write_text("naïve × words · here")
    (folder / "books").mkdir()
    (folder / "books" / "a.txt").write_text("a long story " * 40)
    return folder


class Stream(io.TextIOWrapper):
    """Output as in the C locale."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors=PLAIN, write_through=True)

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", [*COMMANDS, *MISTAKES])
def test_it_fits(line: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "44")
    out, err = Stream(), Stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    if line in MISTAKES:
        assert main(line.split()) == 2
        assert (out.text, err.text.count("\n")) == ("", 1)
        return
    assert main(line.split()) == 0, err.text
    assert out.text.strip()
    too_long = [row for row in out.text.split("\n") if len(row.rstrip()) > 44]
    assert not too_long or line.startswith("reproduce"), too_long  # which lists names as they are
    assert not re.search(r"\\[xu]", out.text)
