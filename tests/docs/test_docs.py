"""What the documentation says can be run, and what it names exists."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from spherelm.cli import VERBS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def commands() -> list[tuple[str, list[str]]]:
    """Every `spherelm ...` of every page, in blocks and in code spans, as words."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = [
            body.replace("\\\n", " ") for kind, body in FENCE.findall(text) if kind != "python"
        ]
        spans = re.findall(r"`((?:torchrun|spherelm) [^`]*)`", FENCE.sub("", text))
        for line in [row for block in blocks for row in block.splitlines()] + spans:
            match = re.search(r"(?:^|[ |])(?:-m )?spherelm ([a-z]+.*)", line.split(" #")[0])
            if match and match[1].split()[0] not in ("VERB",):
                found.append((page.name, shlex.split(match[1].split(" | ")[0].split(" > ")[0])))
    return found


def test_the_readmes_programs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = [body for kind, body in FENCE.findall(PAGES[0].read_text()) if kind == "python"]
    first, own_loop = (compile(code, "README.md", "exec") for code in programs)
    exec(first, {})
    assert capsys.readouterr().out.strip()
    exec(own_loop, {})
    loss = float(capsys.readouterr().out.split()[-1])
    assert loss < 2.0  # 256 bytes at random cost ln 256 = 5.5


def test_the_examples_of_where_things_go_run() -> None:
    page = ROOT / "docs" / "where-things-go.md"
    whole = [body for kind, body in FENCE.findall(page.read_text()) if "import" in body]
    assert len(whole) == 2
    for code in whole:
        exec(compile(code, page.name, "exec"), {})


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http", "mailto")):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def help_of(verbs: list[str]) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        main([*verbs, "--help"])
    return shown.getvalue()


def test_every_command_names_verbs_and_flags_that_exist() -> None:
    pages: dict[tuple[str, ...], str] = {}
    checked = 0
    for page, words in commands():
        assert words[0] in VERBS, f"{page}: spherelm {words[0]}"
        verbs = [words[0]]
        if words[0] in ("bench", "eval") and words[1:2] and re.fullmatch(r"[a-z]+", words[1]):
            verbs.append(words[1])
        if tuple(verbs) not in pages:
            pages[tuple(verbs)] = help_of(verbs)
        short = ("--data", "--steps", "--seed", "--device", "--checkpoint-every", "--lr")
        for word in words[1:]:
            flag = word.split("=")[0]
            if flag.startswith("--") and not (words[0] == "train" and flag in short):
                section, dot, name = flag.removeprefix("--").rpartition(".")
                switch = f"--{section}{dot}[no-]{name.removeprefix('no-')}"  # both of its forms
                shown = pages[tuple(verbs)].replace("\n", " ")
                assert f"{flag} " in shown or f"{switch} " in shown, f"{page}: {flag}"
                checked += 1
    assert checked > 10
