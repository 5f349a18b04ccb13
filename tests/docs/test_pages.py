"""Links lead somewhere, pictures are there, quotations are true, and claims have their results."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path

import pytest

from tests.docs.how_they_run import QUOTED
from tests.docs.pages import PAGES, ROOT, Page

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
from repository import QUOTE, line_of

BY_PATH = {page.path: page for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    for picture, target in page.links:
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.path.parent / path).resolve() if path else page.path
        assert there.exists(), f"{page.name} links to {target}"
        if picture:
            assert there.suffix in (".svg", ".png"), target
        if there in BY_PATH and anchor:
            assert anchor in BY_PATH[there].anchors, f"{page.name} links to {target}"


def test_links_are_many_and_anchors_are_those_of_code_hosts() -> None:
    assert sum(len(page.links) for page in PAGES) > 150
    numerics = BY_PATH[ROOT / "docs" / "numerics.md"]
    assert "if-you-bring-your-own-loop" in numerics.anchors
    assert "numerics-what-breaks-and-how-we-test-it" in numerics.anchors


@pytest.mark.parametrize("name", sorted(QUOTED))
def test_quoted_code_is_the_sources(name: str) -> None:
    page = next(page for page in PAGES if page.name == name)
    quotes = list(QUOTE.finditer(page.text))
    for quote in quotes:
        file = page.path.parent / quote["path"]
        assert line_of(quote["code"], file) is not None, f"{quote['path']} has no\n{quote['code']}"
    blocks = [block for block in page.blocks if block.kind == "python"]
    assert len(quotes) == len(blocks) > 15, (
        "a quotation follows a line that ends in its file's link"
    )


def test_a_quotation_that_is_not_true_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("import math\n\n\ndef f(x):\n    y = x + 1\n    return y * 2\n")
    assert line_of("y = x + 1\nreturn y * 2\n", file) == 5
    assert line_of("y = x + 1\nreturn y * 3\n", file) is None


def test_the_tests_that_numerics_names_exist() -> None:
    page = BY_PATH[ROOT / "docs" / "numerics.md"]
    rows = re.findall(r"\((\.\./tests/[^)]+\.py)\)((?:: (?:`test_\w+`(?:, )?)+)?)", page.text)
    named = [(path, name) for path, names in rows for name in re.findall(r"test_\w+", names)]
    assert len(named) > 8
    for path, name in named:
        assert f"def {name}(" in (page.path.parent / path).read_text(), f"{path}: {name}"


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,]*\.?\d*", text))


def test_what_the_readme_claims_is_in_the_results() -> None:
    """A number of the front page that its result does not have, or has no longer, is noticed."""
    readme, results = (ROOT / "README.md").read_text(), ROOT / "docs" / "results"
    headline = " ".join((results / "headline.md").read_text().replace("**", "").split())
    study = readme.partition("(docs/results/headline.md)")[2].partition("\n## ")[0]
    study = " ".join(study.replace("**", "").split())
    assert "one seed" in study
    claimed = re.findall(r"\d+\.\d+(?: \(\d.*?\))?|\d+M", study)
    assert len(claimed) > 12
    for number in claimed:
        assert number in headline, f"headline.md has no {number} (any more)"
    speed = readme.partition("## Speed")[2].partition("## ")[0]
    table = numbers("".join(line for line in speed.splitlines() if line.startswith("| n")))
    paper = {"1.8", "4", "1.6", "8"}
    assert table - paper <= numbers((results / "speed.md").read_text())
    assert "0.43 ms a token" in (results / "index.md").read_text()
    compare = (results / "compare.md").read_text()
    assert "0.081 and\n0.152" in compare or "0.081 and 0.152" in compare


def test_perplexities_at_eight_times_the_context_are_those_of_the_evaluations() -> None:
    results = ROOT / "docs" / "results"
    read = (results / "data" / "evaluations").glob("length*.json")
    curves = [curve for path in read for curve in json.loads(path.read_text())["curves"]]
    at_32k = {curve["run"].rpartition("/")[2]: curve["perplexities"][-1] for curve in curves}
    ngpt = at_32k["ngpt-muon-4k-368m-linear-lr0.004-s0"]
    tied = at_32k["gpt-qk-muon-tied-4k-368m-linear-lr0.008-s0"]
    gpt = at_32k["gpt-4k-368m-linear-lr0.004-s0"]
    told = f"perplexity is {ngpt:.0f}, the best baseline's {tied:.0f}, GPT's {gpt:.0f} (one seed"
    for path in (ROOT / "README.md", results / "headline.md"):
        assert told in " ".join(path.read_text().split()), path.name


def test_the_table_of_longer_contexts_is_that_of_its_data() -> None:
    """Means and ends of three seeds, and which model holds best at each of them."""
    results = ROOT / "docs" / "results"
    runs = {
        "gpt": "GPT",
        "gpt-qk": "GPT, QK-norm",
        "gpt-muon": "GPT, Muon",
        "gpt-qk-muon": "GPT, QK-norm, Muon",
        "gpt-qk-muon-tied": "the same with tied embeddings",
        "ngpt": "nGPT",
        "ngpt-muon": "nGPT, Muon",
        "ngpt-muon-no-qk": "nGPT, Muon, without QK-norm",
    }
    found: dict[str, list[list[float]]] = {}
    for curve in json.loads((results / "data" / "longer-contexts.json").read_text())["curves"]:
        name = curve["run"].removeprefix("runs/").rpartition("-")[0]
        found.setdefault(runs[name], []).append(curve["perplexities"])
    page = (results / "longer-contexts.md").read_text().replace("**", "")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:1] == "|"]
    told = {row[0]: row[2:] for row in rows if row[0] in found}  # between them the loss
    assert told.keys() == found.keys()
    for name, curves in found.items():
        ends = sorted(curve[-1] for curve in curves)
        means = [sum(seeds) / 3 for seeds in zip(*curves, strict=True)]
        assert told[name] == [*(f"{p:.1f}" for p in means), f"{ends[0]:.1f} to {ends[-1]:.1f}"]
    for seed, length in itertools.product(range(3), (3, 4, 5)):  # from eight times the context on
        at = {name: curves[seed][length] for name, curves in found.items()}
        assert set(sorted(at, key=lambda name: at[name])[:2]) == {"nGPT", "nGPT, Muon"}
