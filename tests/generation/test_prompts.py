"""Where `spherelm generate` takes its prompt from: a pipe, a file, or somebody at a terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spherelm.cli import main
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.generation.text import generate_text
from tests.saved_runs import byte_model, write_run

SHORT = ["--temperature", "0", "--max-new-tokens", "12", "--device", "cpu"]
PROGRAM = [sys.executable, "-m", "spherelm", "generate"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("prompts") / "run", byte_model())


def continued(prompt: str, tokens: int = 12) -> str:
    """The prompt with what the model adds, by the engine itself."""
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(prompt) or [tokenizer.end_of_document]
    engine = Engine(byte_model())
    greedy = Sampling(temperature=0)
    (text,) = generate_text(engine, tokenizer, [ids], max_new_tokens=tokens, sampling=greedy)
    return prompt + text


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_real_pipe(run: Path) -> None:
    """The newline that `echo` adds is not part of the prompt."""
    line = 'echo "def " | "$@"'
    command = ["bash", "-c", line, "bash", *PROGRAM, str(run), *SHORT]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert done.stdout.decode() == continued("def ") + "\n"


@pytest.mark.parametrize(
    ("piped", "prompt"),
    [
        (b"a\nb", "a\nb"),
        (b"a\n\n", "a\n"),
        (b"a\r\n", "a"),
        (b"na\xc3\xafve\n", "naïve"),
        (b"\xef\xbb\xbfdef\r\n", "def"),
        (b"", ""),
    ],
)
def test_what_is_piped_in_is_one_prompt(
    run: Path,
    piped: bytes,
    prompt: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe(monkeypatch, piped)
    assert main(["generate", str(run), *SHORT, "--json"]) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert output["prompt"] == prompt
    assert prompt + output["text"] == continued(prompt)


def test_a_flag_counts_more_than_a_pipe(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, b"piped")
    assert main(["generate", str(run), *SHORT, "--prompt", "named"]) == 0
    assert capsys.readouterr().out.startswith("named")


def test_a_pipe_of_something_else(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, b"\xff\xfe")
    assert main(["generate", str(run), *SHORT]) == 2
    assert "stdin is not UTF-8 text: invalid start byte at byte" in capsys.readouterr().err


def test_a_closed_stdin_begins_a_document(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["generate", str(run), *SHORT]) == 0
    assert capsys.readouterr().out == continued("") + "\n"


def test_a_file_is_one_prompt(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompt.txt"
    for mark in ("", "\ufeff"):  # which some editors begin a file with
        file.write_text(f"{mark}def f():\n    pass\n", encoding="utf-8")
        assert main(["generate", str(run), *SHORT, "--prompt-file", str(file)]) == 0
        assert capsys.readouterr().out == continued("def f():\n    pass") + "\n"


_SIT_DOWN = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Ctrl-C at the terminal becomes a signal, and is heeded: whoever runs the tests in the background
of a shell script has it ignored. Not by preexec_fn, which may hang where other threads run."""


class Terminal:
    """`spherelm generate` with a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        import pty

        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SIT_DOWN, *PROGRAM, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, enough: Any, seconds: float = 60) -> bytes:
        """What it shows from here on, as soon as that is `enough`."""
        deadline, shown = time.monotonic() + seconds, b""
        while not enough(shown):
            assert time.monotonic() < deadline, shown[-300:]
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(self.ours, 65536)
                except OSError:  # it has ended
                    assert enough(shown), shown[-300:]
        return shown

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def interrupt(self) -> None:
        """Ctrl-C while a line is typed, until it asks again. Python's readline may miss one that
        comes just as it begins to wait for a key; whoever sits there presses again."""
        for _ in range(20):
            self.type(b"\x03")
            with contextlib.suppress(AssertionError):
                self.until(asks_again, seconds=3)
                return
        raise AssertionError("Ctrl-C does nothing")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)
        os.close(self.ours)


def asks_again(shown: bytes) -> bool:
    return shown.endswith(b"\r\n> ")


@pytest.mark.skipif(importlib.util.find_spec("pty") is None, reason="this system has no pty")
def test_somebody_at_a_terminal(run: Path) -> None:
    """Asked again and again; Ctrl-C stops an answer, Ctrl-D ends; arrow keys bring back prompts."""
    prompt = "def "
    answer = continued(prompt, 300).encode().replace(b"\n", b"\r\n")
    assert len(answer) > 250  # it does not end by itself before it is stopped
    terminal = Terminal(str(run), "--temperature", "0", "--max-new-tokens", "20000", "--device=cpu")
    try:
        terminal.until(lambda shown: shown.endswith(b"> "))
        terminal.type(prompt.encode() + b"\n")
        shown = terminal.until(lambda shown: len(shown) > 400)
        assert shown.startswith(b"def \r\n" + answer[:200])  # what was typed, then the text
        terminal.type(b"\x03")
        terminal.until(asks_again)
        assert terminal.process.poll() is None
        terminal.type(b"half a line")
        terminal.until(lambda shown: shown.endswith(b"line"))
        terminal.interrupt()
        again = prompt.encode() + b"\n"
        if importlib.util.find_spec("readline") is not None:
            again = b"\x1b[A\n"  # arrow up
        terminal.type(again)
        shown = terminal.until(lambda shown: len(shown) > 400)
        assert answer[:200] in shown
        terminal.type(b"\x03")
        terminal.until(asks_again)
        terminal.type(b"\x04")
        assert terminal.process.wait(20) == 0
    finally:
        terminal.close()


@pytest.mark.skipif(importlib.util.find_spec("pty") is None, reason="this system has no pty")
def test_what_is_not_utf8_is_refused_and_asked_again(run: Path) -> None:
    """As bytes of another encoding, pasted."""
    terminal = Terminal(str(run), *SHORT)
    try:
        terminal.until(lambda shown: shown.endswith(b"> "))
        terminal.type(b"caf\xff\n")
        terminal.until(asks_again)
        terminal.type(b"\x04")
        assert terminal.process.wait(20) == 0
    finally:
        terminal.close()


def test_a_terminal_that_hangs_up_ends_it(run: Path) -> None:
    """As when a window is closed: no process is left behind."""
    terminal = Terminal(str(run), *SHORT)
    terminal.until(lambda shown: shown.endswith(b"> "))
    os.close(terminal.ours)
    try:
        assert terminal.process.wait(20) in (0, 2, -signal.SIGHUP)
    finally:
        with contextlib.suppress(ProcessLookupError):
            terminal.process.kill()


def test_the_same_prompt_goes_on_differently(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from spherelm.cli import ask

    lines = iter(["def ", "def "])

    def typed(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(ask, "is_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", typed)
    argv = ["generate", str(run), "--max-new-tokens", "40", "--device", "cpu"]
    assert main(argv) == 0
    first, second = capsys.readouterr().out.split("def ")[1:]
    assert first.strip() != second.strip()
    assert main([*argv, "--prompt", "def "]) == 0
    assert capsys.readouterr().out.strip() == f"def {first}".strip()
