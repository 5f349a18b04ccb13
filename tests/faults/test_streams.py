"""The program as a process: streams full, closed or plain ASCII, and Ctrl-C at any time."""

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

PROGRAM = [sys.executable, "-m", "spherelm"]
ASCII = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}


def shell(line: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A line of bash in which "$@" is the program."""
    command = ["bash", "-c", line, "bash", *PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a text to prepare."""
    (tmp_path / "text.txt").write_text(sentences(100))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["--help", "info --help", "prepare text.txt --out data"])
def test_output_into_a_full_disk(words: str, here: Path) -> None:
    done = shell(f'"$@" {words} > /dev/full')
    assert done.stderr == "spherelm: cannot read or write: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("words", ["train --help", "prepare text.txt --out data"])
def test_a_reader_that_has_gone_is_no_error(words: str, here: Path) -> None:
    done = shell(f'"$@" {words} | true; exit ${{PIPESTATUS[0]}}')
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_goes_on_though_nobody_reads_along(here: Path) -> None:
    """It had ended at the next line of its log, with status 0 and without a checkpoint."""
    run = "train --preset ngpt-debug --steps 6 --train.log-every 1 --out run"
    done = shell(f'"$@" {run} 2>&1 | true; exit ${{PIPESTATUS[0]}}')
    assert (done.returncode, done.stderr) == (0, "")
    assert (here / "run/checkpoints/step_6").is_dir()


def test_streams_that_are_closed(tmp_path: Path) -> None:
    done = shell('"$@" --version >&-')
    assert done.stderr == "spherelm: stdout is closed; give it a file, or /dev/null\n"
    assert done.returncode == 2
    done = shell('"$@" info --preset nanno 2>&-')  # nowhere to complain: the status says it
    assert (done.returncode, done.stdout) == (2, "")
    done = shell(f'"$@" prepare - --out {tmp_path}/out <&-')
    assert (done.returncode, done.stderr) == (2, "spherelm: cannot read -: stdin is closed\n")
    assert not (tmp_path / "out").exists()


def test_a_terminal_that_knows_ascii_alone(here: Path) -> None:
    done = shell('"$@" prepare text.txt --out data', env=ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "documents" in done.stdout
    done = shell("\"$@\" prepare text.txt --out 'naïve'", env=ASCII)
    assert done.returncode == 2
    assert done.stderr.isascii()
    assert done.stderr.count("\n") == 1


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/odd-\xff.txt"
    with open(odd, "w") as file:
        file.write("some words\n" * 400)
    for words in ([odd], [os.fsencode(tmp_path)]):  # itself, and found in its folder
        command = [*map(os.fsencode, PROGRAM), b"prepare", *words, b"--out", b"new"]
        done = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert b"odd-\\udcff.txt" in done.stderr
        assert b"is not UTF-8" in done.stderr
        assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("heeding_interrupts")
def test_ctrl_c_while_python_imports() -> None:
    """A second is spent on importing torch; Python's own start, before us, is not in our hands."""

    def trial(number: int) -> str | None:
        command = [*PROGRAM, "bench", "step", "--sizes", "nowhere"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONVERBOSE": ""},
        )
        _wait_for(process.pid, "torch")
        time.sleep(random.Random(number).uniform(0, 0.6))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        if (process.returncode, said) == (130, "spherelm: interrupted\n"):
            return None
        if process.returncode == 2 and "unknown preset" in said and said.count("\n") == 1:
            return None  # it was over before
        return f"status {process.returncode}: {said}"

    hold("Ctrl-C while Python imports", trial, sample=2, full=100)


def _wait_for(pid: int, library: str) -> None:
    """Until a process has begun to load a library."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if library in Path(f"/proc/{pid}/maps").read_text():
                return
        except OSError:
            return  # it has ended, or there is no /proc
        time.sleep(0.005)


@pytest.mark.usefixtures("heeding_interrupts")
def test_ctrl_c_while_python_ends() -> None:
    """The work is done and its status stands."""
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "from spherelm.cli import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("spherelm ")


@pytest.mark.parametrize("before", [(), ("new/out",)])
@pytest.mark.usefixtures("heeding_interrupts")
def test_ctrl_c_while_python_imports_leaves_no_folder(
    before: tuple[str, ...], tmp_path: Path
) -> None:
    """Nothing is unwound then; a folder that was held, and is empty, goes all the same."""
    for folder in before:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "slow.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(1)\n"
    )
    code = (
        "from spherelm.cli import process\n"
        "from spherelm.folders import kinds, place\n"
        "process.take_over()\n"
        "with place.results('new/out', kinds.REPORT):\n"
        "    import slow\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (130, "spherelm: interrupted\n")
    assert not list(tmp_path.glob("**/.spherelm"))
    assert (tmp_path / "new").exists() == bool(before)
