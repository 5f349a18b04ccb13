"""The commands and the code of docs/data.md work as they stand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spherelm.data.open import open_dataset

GUIDE = Path(__file__).parents[2] / "docs" / "data.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    documents = [f"Document {i} says that {i} is more than {i - 1}." for i in range(2000)]
    text = "\n<|endoftext|>\n".join(documents)
    Path("corpus.txt").write_text(text)
    Path("held-out.txt").write_text("held out")
    Path("texts").mkdir()
    Path("texts/a.txt").write_text(text)
    Path("notes.jsonl").write_text(json.dumps({"text": "a note"}))
    pq.write_table(pa.table({"body": documents}), "rows.parquet")
    commands = [line for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 7
    script = Path(sys.executable).with_name("spherelm")
    for command in commands:
        if "openwebtext" not in command:  # that one needs the network
            run = command.replace("spherelm", str(script), 1)
            subprocess.run(run, shell=True, check=True, capture_output=True)
    written = {path.name for path in Path("tokens").iterdir()}
    assert written == {"bytes", "bpe", "many", "own-validation", "rows", "piped"}
    assert open_dataset("tokens/many").train.n_tokens > 10_000
    program, positions = blocks("python")
    check = "alone = model(row[:, 3:])\nassert torch.allclose(logits, alone, atol=1e-5)"
    whole = f"{program}\n{positions}\n{check}"
    run = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True)
    assert "says that" in run.stdout, run.stderr
    assert run.returncode == 0, run.stderr


def test_the_layout_in_the_guide_is_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\n<|endoftext|>\n" * 500 + "b")
    command = [sys.executable, "-m", "spherelm", "prepare", str(tmp_path / "t.txt")]
    subprocess.run([*command, "--out", str(tmp_path / "o")], check=True, capture_output=True)
    (layout,) = blocks("text")
    named = set(re.findall(r"^  ([\w.-]+)/? ", layout, re.MULTILINE))
    assert named == {p.name for p in (tmp_path / "o").iterdir() if not p.name.startswith("val")}
