"""Every command and every program of the documentation is run, or at least read by its parser."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spherelm import presets
from spherelm.data.open import open_dataset
from spherelm.model.flops import count_parameters
from spherelm.plots import png
from spherelm.saved import load_model
from tests.docs import how_they_run, sandbox, shell
from tests.docs.pages import PAGES, Block, Page

SHOWN = {"", "text", "toml", "json"}
KINDS = {"console", "python", "bash"} | SHOWN
"""What a block may be; some are shown, not run."""
BY_NAME = {page.name: page for page in PAGES}
RUN = [page for page in PAGES if any(b.kind in ("console", "python", "bash") for b in page.blocks)]


def smaller(line: str) -> str:
    """The line as it is run."""
    for pattern, instead in how_they_run.SMALLER.items():
        line = re.sub(pattern, instead, line)
    return line


def only_parsed(page: Page, line: str) -> bool:
    program = re.sub(r"^(\w+=\S+ )+", "", line).partition(" ")[0].rpartition("/")[2]
    return (
        program in how_they_run.OTHER_PROGRAMS
        or page.name in how_they_run.RECORDS
        or any(re.search(pattern, line) for pattern in how_they_run.ONLY_PARSED)
    )


def in_order(page: Page) -> list[tuple[Block, str]]:
    """The commands of a page as lines and its programs whole, in the order in which they run."""
    found = []
    for block in page.blocks:
        if block.kind == "console":
            found += [(block, line) for line in block.commands]
        elif block.kind in ("python", "bash"):
            found.append((block, block.code))
    first = how_they_run.RUN_FIRST.get(page.name, r"\Z")
    return sorted(found, key=lambda one: re.search(first, one[1]) is None)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sandbox")
    sandbox.fill(folder)
    return folder


@pytest.fixture
def here(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from spherelm.training.report import plan

    folder = tmp_path / "here"
    shutil.copytree(filled, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(plan, "product_speed", lambda device: 1e8)  # only the smallest are measured
    return folder


def run_page(
    page: Page, monkeypatch: pytest.MonkeyPatch, as_it_stands: bool = False
) -> dict[str, str]:
    """Run all of a page in the folder one is in; returns what each command has printed."""
    if page.name not in how_they_run.WITH_PNG and not as_it_stands:
        monkeypatch.setattr(png, "write", lambda *_: None)
    if re.search(r"--data tokens\b(?!/)", page.text) and "--out tokens" not in page.text:
        sandbox.add_tokens(Path.cwd())
    printed = {}
    for block, code in in_order(page):
        where = f"{page.name}, line {block.line}: {code}"
        try:
            if block.kind == "python":
                run_program(page, code)
            elif block.kind == "bash":
                read_script(code, block.commands)
            elif only_parsed(page, code):
                shell.parse(code)
            else:
                line = code if as_it_stands else smaller(code)
                printed[code] = shell.run(line, monkeypatch)
        except Exception as error:
            error.add_note(where) if hasattr(error, "add_note") else None
            raise
    return printed


def run_program(page: Page, code: str) -> None:
    if page.name in how_they_run.QUOTED:
        return  # test_site.py compares it with the source
    for text, instead in how_they_run.PROGRAMS.get(page.name, {}).items():
        code = code.replace(text, instead)
    if "import " not in code:
        code = how_they_run.FRAGMENTS.get(page.name, "") + code
    exec(compile(code, page.name, "exec"), {"__name__": "documentation"})


def read_script(code: str, commands: list[str]) -> None:
    """A script for a scheduler: bash takes it, and torchrun and spherelm take their parts."""
    subprocess.run(["bash", "-n"], input=code, text=True, check=True)
    started = [re.sub(r"^srun ", "", line) for line in commands]
    known = [line for line in started if re.match(r"(torchrun|lm_eval|spherelm) ", line)]
    assert known, f"nothing reads {code}"
    for line in known:
        shell.parse(line)


OF_THEIR_OWN = {"docs/data.md", "docs/everyday.md", "docs/own-text.md", "README.md"}
"""Pages whose effects are looked at as well, below."""


@pytest.mark.parametrize("name", [page.name for page in RUN if page.name not in OF_THEIR_OWN])
def test_page(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(BY_NAME[name], monkeypatch)


def test_readme(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    run_page(BY_NAME["README.md"], monkeypatch)
    loss = float(capsys.readouterr().out.split()[-1])
    assert loss < 2.0  # 256 bytes at random cost ln 256 = 5.5
    assert Path("mine-hf/config.json").exists()


def test_own_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_page(BY_NAME["docs/own-text.md"], monkeypatch)
    for made in ("runs/report/report.html", "runs/inside/index.html", "mine-hf/config.json"):
        assert Path(made).exists()
    (text,) = (said for line, said in printed.items() if "generate" in line)
    assert text.startswith("Once upon a time")
    assert open_dataset("tokens").vocab_size == 300
    assert load_model("runs/more").config.data.path == "tokens-more"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["docs/own-text.md", "docs/getting-started.md"])
def test_a_first_hour_as_it_stands(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a newcomer does first, at full size: a quarter of an hour on two cores."""
    library = sorted(Path(argparse.__file__).parent.glob("*.py"))
    for number, path in enumerate(library):
        folder = "more" if number % 3 == 0 else "texts"
        shutil.copy(path, f"{folder}/{path.stem}.txt")
    run_page(BY_NAME[name], monkeypatch, as_it_stands=True)


def test_data(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = BY_NAME["docs/data.md"]
    _, positions = (block.code for block in page.blocks if block.kind == "python")
    run_page(page, monkeypatch)
    assert "says that" in capsys.readouterr().out
    written = {path.name for path in Path("tokens").iterdir()}
    assert written == {"bytes", "bpe", "many", "own-validation", "rows", "piped"}
    assert open_dataset("tokens/many").train.n_tokens > 10_000
    alone = "alone = model(row[:, 3:])\nassert torch.allclose(logits, alone, atol=1e-5)"
    exec(f"{positions}\n{alone}", {})


def test_everyday(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_page(BY_NAME["docs/everyday.md"], monkeypatch)
    for line, said in printed.items():
        if line.startswith("echo"):
            assert said.startswith("def ")
        elif "story.txt" in line:
            assert said.startswith("Once upon a time")
        elif " info " in line:
            assert int(said) == count_parameters(presets.get("ngpt-debug").model).total
        elif " eval " in line:
            assert float(said) == pytest.approx(math.log(257), rel=0.2)  # of an untrained model
    assert load_model("runs/tuned").config.train.steps == 2
    assert load_model("runs/tuned-2").config.model == load_model("runs/ngpt").config.model


def test_commands_inside_sentences_are_understood(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(filled)
    spans = {(page.name, span) for page in PAGES for span in page.spans}
    assert len(spans) > 40
    for name, span in sorted(spans):
        print(f"{name}: `{span}`")  # shown where it fails
        shell.parse(span, partly=True)


def test_every_block_says_what_it_is() -> None:
    for page in PAGES:
        for block in page.blocks:
            where = f"{page.name}, line {block.line}"
            known = block.kind in KINDS or block.kind.startswith("{")
            assert known, f"{where}: a block of {block.kind}"
            commands = re.search(r"^(spherelm|torchrun|python) ", block.code, re.MULTILINE)
            assert not (block.kind in SHOWN and commands), (
                f"{page.name}, line {block.line}: nobody runs it"
            )


def test_the_table_has_no_line_too_many() -> None:
    lines = [line for page in PAGES for block, line in in_order(page) if block.kind == "console"]
    for pattern in [*how_they_run.SMALLER, *how_they_run.ONLY_PARSED]:
        assert any(re.search(pattern, line) for line in lines), f"no command has {pattern}"
    for page, pattern in how_they_run.RUN_FIRST.items():
        assert any(re.search(pattern, line) for _, line in in_order(BY_NAME[page]))
    for page, replaced in how_they_run.PROGRAMS.items():
        programs = "".join(b.code for b in BY_NAME[page].blocks if b.kind == "python")
        assert all(text in programs for text in replaced), page
    for table in ("RECORDS", "WITH_PNG", "FRAGMENTS", "QUOTED"):
        assert set(getattr(how_they_run, table)) <= set(BY_NAME), table
