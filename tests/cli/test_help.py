"""The help pages: what they say, and that they fit where they are read."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Literal

import pytest
import tyro

from spherelm.cli import VERBS, main
from spherelm.cli.bench import BENCHMARKS
from spherelm.cli.eval import KINDS
from spherelm.console import PLAIN
from spherelm.flags import page, parse
from spherelm.flags.fields import spellings

PAGES = [
    "",
    *VERBS,
    *(f"eval {kind}" for kind in KINDS),
    *(f"bench {what}" for what in BENCHMARKS),
]
"""Everything that may stand before --help."""


def help_of(verb: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        assert main([*verb.split(), "--help"]) == 0
    return shown.getvalue()


@pytest.mark.parametrize("verb", PAGES)
def test_a_page_fits_the_terminal_and_reads_forwards(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {width: help_of(verb, width, monkeypatch) for width in (44, 80, 200)}
    for width, text in pages.items():
        assert f"usage: spherelm {verb}".strip() in text
        too_long = [line for line in text.split("\n") if len(line) > min(width, 100)]
        assert not too_long
        assert not re.search(r"None|STR|INT\b|FLOAT|MISSING|default: (True|False|\))", text)
        assert "Whether to" not in text
        assert not re.search(r"[^`]\B--no-", text), "both forms of a switch stand in one line"
    # The same words, wherever the lines end.
    words = {width: sorted(text.replace("\\\n", "").split()) for width, text in pages.items()}
    assert words[44] == words[80] == words[200]


@pytest.mark.parametrize("verb", PAGES)
def test_a_page_can_be_shown_in_ascii(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of(verb, 80, monkeypatch).encode("ascii", PLAIN).decode()
    assert not re.search(r"\\[xuU]", shown), (
        "a letter that nobody thought of is shown by its number"
    )


def test_pages_need_no_torch() -> None:
    code = (
        "import contextlib, sys; from spherelm.cli import main\n"
        f"for verb in {PAGES!r}:\n"
        "    with contextlib.suppress(SystemExit): main([*verb.split(), '--help'])\n"
        "    assert 'torch' not in sys.modules, verb\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", PAGES)
def test_examples_have_flags_that_exist(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_of(verb, 100, monkeypatch)
    examples = re.findall(r"^    spherelm (.*)$", text, re.MULTILINE)
    assert examples or verb in ("presets", "reproduce") or " " in verb
    for line in examples:
        named = line.split()[0]
        assert line.startswith(verb), "an example of this verb"
        text = help_of(verb or named, 100, monkeypatch)
        if verb != "bench":
            assert all(f"  {flag} " in text for flag in re.findall(r"--[a-z-]+", line)), line


def test_what_people_use_first_is_listed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_of("train", 80, monkeypatch)
    places = [text.index(f"\n  {flag} ") for flag in ("--out", "--data", "--steps", "--lr")]
    assert places == sorted(places)
    assert places[-1] < text.index("\n  --preset ") < text.index("\n  --train.steps ")


def test_help_of_a_verb_by_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = help_of("presets", 80, monkeypatch)
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main(["help", "presets"])
    assert shown.getvalue() == wanted


def test_other_processes_of_a_launcher_leave_help_to_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    for verb in ("", "train", "eval"):
        assert help_of(verb, 80, monkeypatch) == ""


@dataclass(frozen=True)
class Scale:
    """A factor."""

    init: float | None = None
    """At the start."""
    scale: float = 2.0
    """As it is stored."""


@dataclass(frozen=True)
class Section:
    """How it is done.

    And more that is not said.
    """

    deep: bool = False
    """Whether to go
    deep."""
    wide: bool = True
    """Whether it is wide."""
    first: Scale = Scale(0.5)
    """Of the first kind."""
    second: Scale = Scale()
    """Of the second."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """Where."""


@dataclass(frozen=True, kw_only=True)
class Flags(Shared):
    """What it does, in a line that is broken in its source where
    lines end there.

        spherelm verb a b
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Runs."""
    out: str
    """Where to."""
    limit: int | None = None
    """At most."""
    lengths: tuple[int, ...] = (1, 2)
    """How long."""
    rate: float = 1e-8
    """How fast."""
    how: Literal["a", "b"] = "b"
    """How."""
    kind: Literal["cold-and-wet", "hot-and-dry", "warm"] = "warm"
    """Which."""
    quick: bool = False
    """Quickly."""
    section: Section = field(default_factory=Section)


PAGE = """\
usage: spherelm verb RUN... --out FOLDER [options]

What it does, in a line that is broken in its source where lines end there.

    spherelm verb a b

arguments:
  RUN...  Runs.

options:
  --out FOLDER     Where to. (required)
  --deep           Go deep. (default: x)
  --limit N        At most.
  --lengths N...   How long. (default: 1 2)
  --rate X         How fast. (default: 1e-08)
  --how a|b        How. (default: b)
  --kind WHICH     Which. One of cold-and-wet, hot-and-dry, warm. (default:
                   warm)
  --quick          Quickly.
  --device DEVICE  Where. (default: auto)
  --json           Print one JSON object.
  -h, --help       Show this page.

section: How it is done.
  --section.[no-]deep  Go deep. (default: off)
  --section.[no-]wide  Whether it is wide. (default: on)

section.NAME: A factor. NAME is one of
  first   Of the first kind.
  second  Of the second.
  --section.NAME.init X   At the start. (default: 0.5 for first)
  --section.NAME.scale X  As it is stored. (default: 2)"""


@dataclass(frozen=True)
class Words:
    """Words alone."""

    item: tyro.conf.Positional[str] = ""
    """What to do; nothing for all of it."""
    folder_of_things: str | None = None
    """Called by its name."""


def test_a_word_that_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    drawn = page.page(Words(), "verb", {}, frozenset())
    assert drawn.startswith("usage: spherelm verb [ITEM] [options]")
    assert "\n  --folder-of-things FOLDER-OF-THINGS\n" in drawn
    assert parse(Words, ["x"], "verb") == Words("x")
    assert parse(Words, [], "verb") == Words()


def test_a_page_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flags = Flags(runs=(), out="")
    drawn = page.page(flags, "verb", {"--deep": "--section.deep"}, frozenset(("runs", "out")))
    assert drawn.split("\n") == PAGE.replace("Go deep. (default: x)", "Go deep.").split("\n")


def test_every_flag_that_is_taken_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from spherelm.cli.train import TrainFlags

    text = help_of("train", 80, monkeypatch)
    scales = [
        f.name
        for f in dataclasses.fields(TrainFlags(out="").model)
        if "scale" in str(f.type).lower()
    ]
    assert len(scales) == 6
    for flag in spellings(TrainFlags(out="")):
        if flag.startswith("--no-"):  # of a plain flag that is off: taken, and not worth a line
            continue
        section, dot, name = flag.rpartition(".")
        parts = section.split(".")
        if len(parts) == 2 and parts[1].replace("-", "_") in scales:
            flag = f"{parts[0]}.NAME.{name}"
        shown = [flag, f"{section}{dot}[no-]{name.removeprefix('no-')}"]
        assert any(re.search(rf"\n  {re.escape(each)}( |\n)", text) for each in shown), flag


def run(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spherelm", *argv],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_a_program_in_the_c_locale() -> None:
    """Help, a table and an error with letters that ASCII does not have."""
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "COLUMNS": "44", "PYTHONUTF8": "0"}
    done = run("train", "--help", **plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 * d_model" in " ".join(done.stdout.split())
    done = run("presets", **plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    done = run("eval", "größe", **plain)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("spherelm: ")
    assert done.stderr.isascii()
    assert done.stderr.count("\n") == 1
