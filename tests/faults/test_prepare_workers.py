"""A `prepare` that is killed leaves no process behind, whatever its workers were at."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.corpus import sentences
from tests.faults.trials import hold

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")

PATIENCE = 5.0
"""Seconds that workers may take to end: on a busy machine also that takes its time."""


def processes_with(mark: str) -> list[int]:
    """The processes that have inherited `mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it has ended, or is not ours
                continue
    return found


def test_no_worker_survives_the_kill_of_its_parent(tmp_path: Path) -> None:
    from spherelm.data.tokenizer_library import train_tokenizer

    text = tmp_path / "text.txt"
    text.write_text(sentences(60_000))
    train_tokenizer(iter([text.read_text()[:50_000]]), 300).save(tmp_path / "tokenizer")

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        mark = f"{os.getpid()}-{number}-{tmp_path.name}"
        command = [sys.executable, "-m", "spherelm", "prepare", str(text)]
        command += ["--out", str(tmp_path / f"out{number}"), "--workers", "3"]
        command += ["--tokenizer", str(tmp_path / "tokenizer")]
        process = subprocess.Popen(
            command,
            env={**os.environ, "SPHERELM_TEST_MARK": mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(draw.uniform(0.25, 1.5))
        process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM)))
        process.wait()
        deadline = time.monotonic() + PATIENCE
        while (left := processes_with(mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return f"{len(left)} processes are left" if left else None

    hold("kill of prepare leaves no process", trial, sample=3, full=200)
