"""The commands and programs of the guides to generation, Hugging Face and evaluation work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from spherelm.cli import main
from tests.eval.task_files import write_task_files
from tests.saved_runs import byte_model, write_run

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "ngpt", byte_model(context=512))
    write_run(tmp_path / "runs" / "gpt", byte_model(arch="gpt"))
    Path("prompts.txt").write_text("one\ntwo\n")
    Path("text.txt").write_text("some text " * 30)
    Path("books").mkdir()
    Path("books/a.txt").write_text("a long story " * 40)
    write_task_files(tmp_path / "tasks")
    return tmp_path


@pytest.mark.parametrize("page", ["generate.md", "huggingface.md", "evaluation.md"])
def test_commands_work_as_they_stand(page: str, here: Path) -> None:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert len(lines) > 3
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "spherelm"
        if words[1:3] != ["bench", "decode"]:  # tests/generation/test_fused.py runs it, smaller
            assert main(words[1:]) == 0, line


def test_programs_work_as_they_stand(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, with_an_engine = blocks("generate.md", "python")
    exec(short, {})
    assert capsys.readouterr().out.strip()
    exec(with_an_engine, {})
    assert len(capsys.readouterr().out.splitlines()) == 2
