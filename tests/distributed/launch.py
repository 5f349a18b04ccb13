"""torchrun on this machine, as a user would call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def torchrun(processes: int, *arguments: str, restarts: int = 0) -> list[str]:
    """The command line that starts `processes` of something."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
        f"--max-restarts={restarts}",
        *arguments,
    ]


def children(pid: int) -> list[int]:
    """The processes started by `pid`."""
    task = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in task.read_text().split()]


def environment() -> dict[str, str]:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def run_together(
    processes: int, *arguments: str, restarts: int = 0, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run `processes` of something to their end."""
    return subprocess.run(
        torchrun(processes, *arguments, restarts=restarts),
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_specs(processes: int, specs: list[dict[str, Any]], folder: Path) -> None:
    """Let a group of processes run `specs` one after another (see `worker`)."""
    file = folder / f"specs-{processes}.json"
    file.write_text(json.dumps(specs))
    worker = str(Path(__file__).with_name("worker.py"))
    done = run_together(processes, worker, str(file), timeout=600)
    assert done.returncode == 0, done.stderr[-6000:]
