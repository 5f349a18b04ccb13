"""The wheel and the source archive of this tree, built as `pip` would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]


def build(target: Literal["wheel", "sdist"], folder: Path) -> Path:
    """Build one of them into `folder`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built
