"""A `prepare` that is killed or interrupted leaves no process behind, whatever its workers did."""

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


@pytest.mark.usefixtures("heeding_interrupts")
def test_ctrl_c_ends_prepare_whatever_its_workers_are_at(tmp_path: Path) -> None:
    """While they still import, tokenize, or train a tokenizer, which takes six seconds here."""
    from spherelm.data.tokenizer_library import train_tokenizer

    draw = random.Random(0)
    words = ("".join(draw.choices("abcdefghijklmnop", k=12)) for _ in range(200_000))
    text = tmp_path / "text.txt"
    text.write_text(" ".join(words))
    train_tokenizer(iter([text.read_text()[:50_000]]), 300).save(tmp_path / "tokenizer")
    kinds = (("--train-tokenizer", "20000"), ("--tokenizer", str(tmp_path / "tokenizer")))

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        mark = f"ctrl-c-{os.getpid()}-{number}-{tmp_path.name}"
        command = [sys.executable, "-m", "spherelm", "prepare", str(text), *kinds[number % 2]]
        out = tmp_path / f"interrupted{number}"
        process = subprocess.Popen(
            [*command, "--workers", "3", "--shard-tokens", "100000", "--out", str(out)],
            env={**os.environ, "SPHERELM_TEST_MARK": mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        while process.poll() is None and not any(map(is_worker, processes_with(mark))):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.6))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        try:
            _, said = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"it went on for {PATIENCE:g} s"
        deadline = time.monotonic() + PATIENCE
        while (left := processes_with(mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left or process.returncode != 130 or said != "spherelm: interrupted\n":
            return f"status {process.returncode}, {len(left)} processes are left: {said}"
        return None

    hold("Ctrl-C of prepare", trial, sample=4, full=100)


def is_worker(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
