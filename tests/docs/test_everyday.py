"""The commands of docs/everyday.md do what it says, as they stand but for the number of steps."""

from __future__ import annotations

import io
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.saved import load_model
from tests.corpus import sentences
from tests.docs.test_docs import FENCE, ROOT
from tests.saved_runs import byte_model, write_run

PAGE = (ROOT / "docs" / "everyday.md").read_text()


def lines(kind: str) -> list[str]:
    return [row for name, body in FENCE.findall(PAGE) if name == kind for row in body.splitlines()]


def test_its_commands_work_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from spherelm.training.report import plan

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "product_speed", lambda device: 1e8)  # only the smallest are measured
    write_run(tmp_path / "runs" / "ngpt", byte_model())
    Path("new.txt").write_text(sentences(2000))
    Path("story.txt").write_text("Once upon a time\n")
    commands = lines("console")
    assert len(commands) == 10
    commands.sort(key=lambda line: "spherelm prepare" not in line)  # a text before it is learned
    for name in ("a", "b"):
        shutil.copytree(ROOT / "tests" / "compat" / "ngpt", tmp_path / "runs" / f"ngpt-{name}")
    for line in commands:
        piped, _, command = line.rpartition(" | ")
        words = shlex.split(command)
        assert words[0] == "spherelm"
        stdin = io.TextIOWrapper(io.BytesIO(shlex.split(piped)[1].encode() if piped else b""))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["2" if word == "2000" else word for word in words[1:]]) == 0, line
        said = capsys.readouterr().out
        if piped:
            assert said.startswith("def ")
        elif "story.txt" in words:
            assert said.startswith("Once upon a time")
    assert load_model("runs/tuned").config.train.steps == 2
    (program,) = (body for kind, body in FENCE.findall(PAGE) if kind == "python")
    exec(program.replace("ngpt-nano", "ngpt-debug").replace("runs/tuned", "runs/again"), {})
    assert load_model("runs/again").config.model == byte_model().config
