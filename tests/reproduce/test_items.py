"""Every item at a size for tests: all rows, all columns with their units, ours beside the paper's.

Never whether a result is the one that was hoped for.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spherelm.cli import main
from spherelm.model.config import ARCHS
from spherelm.paper import registry, reported, sizes, store
from spherelm.paper.points import BUDGETS, CONTEXTS, Point
from spherelm.paper.runner import Job
from tests.browser import browser
from tests.reproduce.form import check_form

SIZE = sizes.get("debug")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All items in one folder, so that they share their runs."""
    folder = tmp_path_factory.mktemp("reproduce") / "out"
    assert main(["reproduce", "all", "--size", "debug", "--out", str(folder)]) == 0
    return folder


def result(out: Path, name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / name / "result.json").read_text())
    return read


def column(table: dict[str, Any], name: str, whose: str = "ours") -> list[Any]:
    (place,) = (
        i
        for i, each in enumerate(table["columns"])
        if (each["name"], each["whose"]) == (name, whose)
    )
    return [row[place] for row in table["rows"]]


@pytest.mark.parametrize("name", registry.NAMES)
def test_an_item_has_all_its_rows_and_columns(out: Path, name: str) -> None:
    check_form(out / name, name, SIZE)


@pytest.mark.parametrize("name", registry.NAMES)
def test_its_page_needs_nothing_else_and_says_what_the_json_says(out: Path, name: str) -> None:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.open, self.asked = 0, list[str](), list[str]()

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.rows += tag == "tr"
            self.asked += [value for key, value in attrs if key in ("src", "href")]
            if tag not in ("meta", "line", "circle", "rect", "path", "polyline", "polygon"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag in self.open:
                assert self.open.pop() == tag

    page = (out / name / "index.html").read_text()
    found, reader = result(out, name), Reader()
    reader.feed(page)
    assert not reader.open
    assert not reader.asked
    tables = [*(len(table["rows"]) for table in found["tables"])]
    tables += [len(found["runs"])] if found["runs"] else []
    assert reader.rows == sum(tables) + len(tables)
    for note in found["notes"]:
        assert note[:20].replace("'", "&#x27;") in page
    markdown = (out / name / "result.md").read_text()
    assert sum(line.startswith("|---") for line in markdown.splitlines()) == len(found["tables"])
    for target in re.findall(r"\]\(([^)]+)\)", markdown):
        ElementTree.parse(out / name / target)


def test_the_curves_of_a_picture_can_be_told_apart(out: Path) -> None:
    """By colour, or by a line that is dotted."""
    for picture in out.glob("*/pictures/*.svg"):
        looks = re.findall(r'<polyline class="(curve [^"]+)"', picture.read_text())
        assert len(set(looks)) == len(looks), picture


def test_losses_are_those_of_the_runs(out: Path) -> None:
    table = result(out, "token-budget")["tables"][1]
    expected = {
        arch: [
            store.read_one(out / "records" / SIZE.job(Point(arch, "1B", context, budget)).id).loss
            for context in CONTEXTS
            for budget in BUDGETS
        ]
        for arch in ARCHS
    }
    assert column(table, "GPT's loss") == expected["gpt"]
    assert column(table, "nGPT's loss") == expected["ngpt"]
    assert all(0 < loss < 20 for losses in expected.values() for loss in losses)


def test_a_page_of_one_run_says_so(out: Path) -> None:
    assert len(result(out, "learned-scales")["runs"]) == 1
    assert "1 run on the built-in corpus" in (out / "learned-scales" / "index.html").read_text()


def test_what_was_trained_on_is_said_where_something_was(out: Path) -> None:
    for name, trained in (("loss-curve", True), ("parameters", False), ("step-time", False)):
        said = (out / name / "result.md").read_text()
        assert ("Trained on the built-in corpus." in said) == trained
        assert ("Nothing had to be trained for it." in said) != trained


def test_items_share_their_runs(out: Path) -> None:
    jobs = [job.id for item in registry.items() for job in item.jobs(SIZE)]
    trained = {path.parent.name for path in (out / "runs").glob("*/config.toml")}
    assert trained == set(jobs)
    assert len(jobs) > 1.5 * len(trained)


def test_the_paper_s_numbers_are_the_paper_s(out: Path) -> None:
    """Read off the paper once more."""
    (norm,) = result(out, "ablation-norm")["tables"]
    assert column(norm, "time per step", "paper") == [0.657, 0.576, 0.726]
    assert column(norm, "average accuracy", "paper") == [54.44, 54.71, 54.80]
    assert column(norm, "change of loss", "paper") == [0.0, 0.12, -0.08]
    # The only final loss and average that it prints: nGPT of 0.5B at 1k after 100k iterations.
    assert (reported.PRINTED_LOSS, reported.PRINTED_ACCURACY) == (2.252, 54.44)
    speed_up = result(out, "token-budget")["tables"][0]
    assert column(speed_up, "speed-up, about", "paper") == [4, 10, 20]
    parameters = result(out, "parameters")["tables"][0]
    theirs = column(parameters, "parameters", "paper")
    assert theirs == [468.2, 468.4, 1025.7, 1026.1]
    # The presets are these models: their counts are what Table 2 prints, cut off after a digit.
    assert [math.floor(10 * m) / 10 for m in column(parameters, "parameters")] == theirs
    init = result(out, "ablation-init")["tables"][0]
    means = column(init, "mean after training", "paper")
    assert means[:3] == ["1.51", "1.36", "1.01"]
    assert means[6:9] == ["1.24 & 1.12", "0.03 & 0.03", "2.75 & 11.2"]
    (scales,) = result(out, "learned-scales")["tables"]
    assert column(scales, "mean", "paper")[:2] == [0.20, 0.32]
    (times,) = result(out, "step-time")["tables"]
    assert column(times, "longer by", "paper") == [None, 80, 60]


def test_insides_are_those_that_inspect_finds(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SIZE.job(Point("ngpt", "1B", "4k", SIZE.insides_budget))
    looked = ["inspect", str(out / "runs" / job.id), "--out", str(tmp_path / "look"), "--json"]
    assert main([*looked, "--layer", "2"]) == 0
    found = json.loads(capsys.readouterr().out)["models"][0]
    (scales,) = result(out, "learned-scales")["tables"]
    assert column(scales, "mean") == [each["all_layers"]["mean"] for each in found["factors"]]
    assert column(scales, "start") == [each["start"] for each in found["factors"]]
    for name, end in (("lowest layer", min), ("highest layer", max)):
        assert column(scales, name) == [end(each["means"]) for each in found["factors"]]
    (conditions,) = result(out, "condition-numbers")["tables"]
    largest = column(conditions, "largest over layers")[1::2]
    assert largest == [max(each["by_layer"]) for each in found["conditions"]]
    medians = [statistics.median(each["by_layer"]) for each in found["conditions"]]
    assert column(conditions, "median over layers")[1::2] == medians
    (embeddings,) = result(out, "embeddings")["tables"]
    for name, number in (("norm, mean", "norms"), ("dot product, mean", "dot_products")):
        assert column(embeddings, name)[1::2] == [e[number]["mean"] for e in found["embeddings"]]
    assert column(embeddings, "condition number")[1::2] == [
        each["condition"] for each in found["embeddings"]
    ]
    (matrices,) = result(out, "layer-matrices")["tables"]
    shares = column(matrices, "singular values above 1 % of the largest")[1::2]
    for share, each in zip(shares, found["matrices"], strict=True):
        values = each["singular_values"]
        assert share == 100 * sum(v / values[0] > 0.01 for v in values) / len(values)


def test_what_follows_from_other_cells_of_a_row_does(out: Path) -> None:
    (times,) = result(out, "step-time")["tables"]
    gpt, ngpt = column(times, "GPT"), column(times, "nGPT")
    longer = [100 * (b / a - 1) for a, b in zip(gpt, ngpt, strict=True)]
    assert column(times, "longer by") == pytest.approx(longer)
    (norm,) = result(out, "ablation-norm")["tables"]
    for whose in ("ours", "paper"):
        seconds = column(norm, "time per step", whose)
        changes = [100 * (each / seconds[0] - 1) for each in seconds]
        assert column(norm, "change of time", whose) == pytest.approx(changes)
    (length,) = result(out, "length")["tables"]
    lengths = [n * SIZE.contexts["1k"] // 1024 for n in reported.LENGTHS]
    for row in length["rows"]:
        by_length = dict(zip(lengths, row[2:8], strict=True))
        assert row[8] == pytest.approx(by_length[lengths[-1]] / by_length[row[1]])
    for table in result(out, "tasks")["tables"]:
        for row in table["rows"]:
            assert row[8] == pytest.approx(sum(row[2:7]) / 5)


def test_a_second_call_trains_and_asks_nothing(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {
        path: path.stat().st_mtime_ns
        for folder in ("runs", "records", "measured")
        for path in (out / folder).rglob("*.json*")
    }
    command = ["reproduce", "ablation-norm", "--size", "debug", "--out", str(out), "--json"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "3 of 3 runs done already" in said.err
    assert json.loads(said.out)["item"] == "ablation-norm"
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_a_run_that_diverged_is_a_row_without_numbers_and_is_not_trained_again(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = shutil.copytree(out, tmp_path / "out")

    def let_diverge(job: Job) -> None:
        file = there / "records" / job.id / "result.json"
        ended = {"finished": False, "diverged": True}
        file.write_text(json.dumps(json.loads(file.read_text()) | ended))
        shutil.rmtree(there / "runs" / job.id / "checkpoints")

    let_diverge(SIZE.job(Point("ngpt", variant="s_u-scalar")))
    of_items = ["--size", "debug", "--out", str(there)]
    assert main(["reproduce", "ablation-scalar", *of_items]) == 0
    assert "12 of 12 runs done already" in capsys.readouterr().err
    losses, means = result(there, "ablation-scalar")["tables"]
    (place,) = (i for i, row in enumerate(losses["rows"]) if row[0] == "scalar s_u & s_ν")
    assert column(losses, "final loss")[place] is column(losses, "average accuracy")[place] is None
    assert column(means, "s_z")[place].endswith("= –")
    # What shows the model itself cannot be made; what comes after it is.
    baseline = SIZE.job(Point("ngpt", "1B", "4k", SIZE.insides_budget))
    let_diverge(baseline)
    assert main(["reproduce", "all", *of_items]) == 0
    said = capsys.readouterr()
    assert f"embeddings cannot be made: {baseline.id} diverged" in said.err
    assert "ablation-norm/index.html" in said.out


def test_books_that_changed_are_read_again(out: Path, tmp_path: Path) -> None:
    there, books = shutil.copytree(out, tmp_path / "out"), tmp_path / "books"
    books.mkdir()

    def perplexities(text: str) -> list[list[Any]]:
        (books / "book.txt").write_text(text)
        command = ["reproduce", "length", "--size", "debug", "--out", str(there)]
        assert main([*command, "--books", str(books)]) == 0
        rows: list[list[Any]] = result(there, "length")["tables"][0]["rows"]
        return rows

    first = perplexities("a" * 1000)
    assert perplexities("b" * 1000) != first


def test_the_folder_has_a_page_of_its_items(out: Path) -> None:
    page = (out / "index.html").read_text()
    linked = re.findall(r'href="([^"]+)"', page)
    assert linked == [f"{name}/index.html" for name in registry.NAMES]
    assert all((out / target).is_file() for target in linked)


LETTERS = """
[...document.querySelectorAll("svg.chart")].map(chart =>
  parseFloat(getComputedStyle(chart).fontSize) * chart.getBoundingClientRect().width
  / chart.viewBox.baseVal.width)
"""


HIDDEN_COLUMNS = """
[...document.querySelectorAll(":not(details) > .scroll:has(> .narrow)")]
  .filter(each => each.scrollWidth > each.clientWidth).length
"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["loss-curve", "condition-numbers", ""])
def test_a_page_fits_and_its_letters_can_be_read(
    out: Path, tmp_path: Path, name: str, width: int
) -> None:
    """At a desk and on a phone, of one picture or many: letters between 10 and 20 pixels."""
    with browser(tmp_path) as page:
        page.size(width)
        page.open(out / name / "index.html")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.errors == []
        assert all(10 <= letters <= 20 for letters in page.run(LETTERS))
        if name == "loss-curve":  # the paper's numbers are the last column
            assert page.run(HIDDEN_COLUMNS) == 0
