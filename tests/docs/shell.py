"""Documented command lines: run in this process, or read by the program's own parser."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spherelm.cli import VERBS, main
from tests.docs.pages import ROOT


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a line of a shell here and now; returns what it printed.

    `A | spherelm ...`, `spherelm ... | B` and `spherelm ... > FILE` work, and nothing else that a
    shell can do.
    """
    line, _, file = line.partition(" > ")
    parts = line.split(" | ")
    ours = next((i for i, part in enumerate(parts) if part.startswith("spherelm ")), None)
    assert ours is not None, f"nothing runs {line!r}: see how_they_run.py"
    piped = _shell(parts[:ours], "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = main(shlex.split(parts[ours])[1:])
    assert status == 0, line
    said = _shell(parts[ours + 1 :], printed.getvalue())
    if file:
        Path(file.strip()).write_text(said)
    return said


def _shell(parts: list[str], given: str) -> str:
    """What a pipe of other programs makes of `given`; `python` is the one that runs this."""
    if not parts:
        return given
    found = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    line = f"set -o pipefail; {' | '.join(parts)}"
    done = subprocess.run(
        ["bash", "-c", line],
        input=given,
        env=os.environ | {"PATH": found},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


class Parsed(Exception):
    """A parser has taken all of a command line."""


def parse(line: str, partly: bool = False) -> None:
    """Let the program's own parser read a command line; raises where that refuses it.

    A sentence may name only a part of a command, or FILE for a file: `partly` allows that.
    """
    line = line.partition(" | ")[0].partition(" > ")[0]
    words = shlex.split(re.sub(r"\$\(.*?\)|\$\w+", "1", line))
    while re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    program, rest = words[0].rpartition("/")[2], words[1:]  # .venv/bin/pytest is pytest
    reader: dict[str, Callable[[list[str], bool], None]] = {
        "spherelm": _spherelm,
        "torchrun": _torchrun,
        "make": _make,
        "pip": _pip,
        "pytest": _pytest,
        "python": _python,
        "lm_eval": _lm_eval,
    }
    assert program in reader, f"nothing reads {line!r}"
    reader[program](rest, partly)


def _spherelm(words: list[str], partly: bool) -> None:
    if partly and words[0] == "VERB":
        return
    assert words[0] in VERBS, f"there is no verb {words[0]}"
    said = io.StringIO()
    with _stopping_when_parsed(), contextlib.redirect_stderr(said):
        try:
            status = main([word for word in words if word not in ("...", "…")])
        except Parsed:
            return
        except SystemExit as end:  # --help
            status = int(end.code or 0)
    left_open = re.search("must be given|does not exist", said.getvalue())
    assert status == 0 or (partly and left_open), f"spherelm {' '.join(words)}: {said.getvalue()}"


@contextlib.contextmanager
def _stopping_when_parsed() -> Iterator[None]:
    """End a verb as soon as tyro or argparse has understood its flags."""
    import tyro

    def stopping(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **kwargs: Any) -> Any:
            raise Parsed(read(*args, **kwargs))

        return reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tyro, "cli", stopping(tyro.cli))
        parse_args = argparse.ArgumentParser.parse_args
        patch.setattr(argparse.ArgumentParser, "parse_args", stopping(parse_args))
        yield


def _torchrun(words: list[str], partly: bool) -> None:
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    if partly:
        words = [word for word in words if word not in ("...", "…")]
        known = {option for action in parser._actions for option in action.option_strings}
        ours = words.index("-m") if "-m" in words else len(words)
        for word in words[:ours]:
            assert not word.startswith("--") or word.partition("=")[0] in known, word
        words = words[ours:]
        if not words:
            return
    flags = parser.parse_args(words)
    assert flags.module
    assert flags.training_script == "spherelm"
    _spherelm(flags.training_script_args, partly)


def _make(words: list[str], partly: bool) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        assert word in targets or re.fullmatch(r"[A-Z]+=.*", word), f"make {word}"


def _pip(words: list[str], partly: bool) -> None:
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert words[0] == "install"
    for word in words[1:]:
        assert re.fullmatch(r"-e|triton|(\.|spherelm)(\[[\w,]+\])?|dist/\S+", word), word
        for extra in re.findall(r"\w+", word.partition("[")[2]):
            assert extra in extras, f"there is no extra {extra}"


def _pytest(words: list[str], partly: bool) -> None:
    marks = (ROOT / "pyproject.toml").read_text()
    options = dict(itertools.pairwise(words))
    if "-m" in options:
        assert f'"{options["-m"]}: ' in marks, f"there is no mark {options['-m']}"
    for word in words:
        assert not word.startswith("tests/") or (ROOT / word.partition("::")[0]).exists(), word


def _python(words: list[str], partly: bool) -> None:
    assert words[0] == "-m"
    assert words[1].startswith("spherelm")
    if words[1] == "spherelm":
        _spherelm(words[2:], partly)
        return
    module = importlib.import_module(words[1])
    if partly and not words[2:]:
        return
    with _stopping_when_parsed(), contextlib.suppress(Parsed):
        module.main(words[2:])
        raise AssertionError(f"{words[1]} reads no flags")


def _lm_eval(words: list[str], partly: bool) -> None:
    from lm_eval._cli.harness import HarnessCLI

    HarnessCLI()._parser.parse_args(["run", *words])
