"""The layout that docs/data.md shows is the one that is written."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "data.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_layout_in_the_guide_is_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\n<|endoftext|>\n" * 500 + "b")
    command = [sys.executable, "-m", "spherelm", "prepare", str(tmp_path / "t.txt")]
    subprocess.run([*command, "--out", str(tmp_path / "o")], check=True, capture_output=True)
    (layout,) = blocks("text")
    named = set(re.findall(r"^  ([\w.-]+)/? ", layout, re.MULTILINE))
    assert named == {p.name for p in (tmp_path / "o").iterdir() if not p.name.startswith("val")}
