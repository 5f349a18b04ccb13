"""The page and the figures of a comparison."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from spherelm import presets
from spherelm.compare.charts import charts_of
from spherelm.compare.departures import departures
from spherelm.compare.report import render
from spherelm.compare.table import rows
from spherelm.config_io import override
from spherelm.plots import png, svg
from spherelm.training.report.samples import printable
from tests.compare.made import ENVIRONMENT, comparison

REACHED = comparison(gpt=[5.0, 4.0, 3.0, 2.2], ngpt=[4.0, 2.5, 2.0, 1.5])
GPT_AHEAD = comparison(gpt=[5.0, 2.0], ngpt=[4.0, 2.5])
NEITHER = comparison(gpt=[5.0, 2.0], ngpt=[4.0, 2.0])
OUTCOMES = {"nGPT ahead": REACHED, "GPT ahead": GPT_AHEAD, "neither": NEITHER}
LOADS = re.compile(
    r"https?:(?!//www\.w3\.org/2000/svg)|url\((?!#)|@import|<(link|img|iframe|object)\b|\bsrc=|"
    r"\bfetch\(|XMLHttpRequest|\bimport\("
)
"""What would make a browser ask for something; url(#...) is a part of the page itself, and the
address of SVG is a name."""


class Tags(HTMLParser):
    """Checks that elements are closed in order, and collects their names."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)


@pytest.mark.parametrize(("threads", "told"), [(1, ", 1 CPU thread;"), (2, ", 2 CPU threads;")])
def test_threads_are_counted(threads, told):
    made = replace(REACHED.ngpt, environment={**ENVIRONMENT, "cpu_threads": threads})
    assert told in render(replace(REACHED, ngpt=made))


def test_a_beginning_above_the_picture_is_told():
    assert "cut off" not in render(REACHED)
    early = comparison(gpt=[9.0, *[5.0, 4.0, 3.0, 2.2] * 2], ngpt=[8.0, *[4.0, 2.5, 2.0, 1.5] * 2])
    assert render(early).count("Higher values at the beginning are cut off.") == 2


@pytest.mark.parametrize("made", OUTCOMES.values(), ids=OUTCOMES)
def test_page_is_whole_and_asks_for_nothing(made):
    html = render(made)
    assert LOADS.search(html) is None
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.seen.count("svg") == tags.seen.count("desc") == 3
    assert tags.seen.count("h1") == 1
    assert re.search(r'<html lang="en">', html)


def test_page_says_what_happened():
    pages = {name: render(made) for name, made in OUTCOMES.items()}
    headlines = {name: re.search("<h1>(.*)</h1>", page)[1] for name, page in pages.items()}
    assert "nGPT reached GPT&#x27;s final loss" in headlines["nGPT ahead"]
    assert f"{REACHED.crossing.speedup_tokens:.2f}× fewer tokens" in headlines["nGPT ahead"]
    assert "GPT was ahead" in headlines["GPT ahead"]
    assert "No difference" in headlines["neither"]
    assert "fewer tokens" not in pages["neither"]
    assert all("One seed" in page for page in pages.values())


@pytest.mark.parametrize("size", presets.MODELS)
def test_the_page_says_which_gpt_it_is(size):
    """The paper's, beside which there are better ones, or the strongest: never one in between."""
    gpt = presets.of_size(size, "gpt")
    page = render(replace(REACHED, gpt=replace(REACHED.gpt, config=gpt)))
    changes = (gpt.model.gpt_qk_norm, gpt.model.tie_embeddings, gpt.optim.algorithm == "muon")
    strongest = "This GPT is the strongest that we know" in page
    assert set(changes) == {strongest}
    assert ("This GPT is the paper&#x27;s, trained with AdamW like nGPT." in page) != strongest


def test_departures_name_what_makes_the_strongest_gpt():
    strong = replace(
        REACHED,
        preset="nano-muon",
        **{
            side.arch: replace(side, config=presets.get(f"{side.arch}-nano-muon"))
            for side in REACHED.sides
        },
    )
    named = {found.what: found for found in departures(strong)}
    assert {"GPT: QK-norm", "GPT: tied embeddings", "optimizer", "decay of the rate"} <= set(named)
    assert "Muon" in named["optimizer"].here
    assert named["learning rate"].here == "GPT 0.004, nGPT 0.004 (0.008 for Muon)"
    papers = {found.what for found in departures(REACHED)}
    assert papers.isdisjoint(("GPT: QK-norm", "GPT: tied embeddings", "optimizer"))


def test_the_page_says_how_large_both_models_are():
    assert "Two language models of 164k and 166k parameters, GPT" in render(REACHED)
    wider = {
        side.arch: replace(side, config=override(side.config, {"model.d_model": 1024}))
        for side in (REACHED.gpt, REACHED.ngpt)
    }
    assert "Two language models of 34.1M parameters, GPT" in render(replace(REACHED, **wider))


def test_the_link_to_the_insides_is_there_where_they_are():
    assert "Look inside" not in render(REACHED)
    html = render(REACHED, "inside/index.html")
    assert '<a href="inside/index.html">Look inside both models</a>' in html
    assert '<a href="#inside">Look inside</a>' in html


def test_text_of_models_cannot_become_markup():
    assert "&lt;b&gt;" in render(REACHED)
    assert "<b>" not in render(REACHED)


def test_names_and_commands_cannot_become_markup_either():
    page = render(replace(REACHED, data='<i>"texts"</i> & more'))
    assert "&lt;i&gt;&quot;texts&quot;&lt;/i&gt; &amp; more" in page
    assert "<code>spherelm compare --out &#x27;a b&#x27;</code>" in page  # as a shell takes it


def test_the_beginning_does_not_press_the_curves_flat():
    losses = [9.0, 3.0, *(3.0 - 0.1 * n for n in range(1, 9))]
    for chart in charts_of(comparison(gpt=losses, ngpt=[8.0, 3.2, *losses[2:]]))[:2]:
        assert chart.y.top == 3.2


def test_bits_per_byte_are_told_where_both_have_them():
    def told(**sides):
        return "bits per byte" in [row.what for row in rows(replace(REACHED, **sides))]

    gpt, ngpt = (replace(side, bits_per_byte=None) for side in REACHED.sides)
    assert told()
    assert not told(gpt=gpt)
    assert not told(gpt=gpt, ngpt=ngpt)


def test_every_evaluation_is_drawn_at_its_place():
    loss, *_ = charts_of(REACHED)
    root = ElementTree.fromstring(svg.draw(loss))
    gpt = next(p for p in root.iter("polyline") if "gpt" in p.get("class", "").split())
    points = [tuple(map(float, pair.split(","))) for pair in gpt.get("points", "").split()]
    assert len(points) == len(REACHED.gpt.curve) == len(root.findall("g/rect"))
    xs, ys = zip(*points, strict=True)
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys)  # the loss falls, and y points down
    steps = [b - a for a, b in itertools.pairwise(xs)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)  # coordinates have one decimal


def test_crossing_is_marked_only_where_there_is_one():
    for made, marks in ((REACHED, 1), (GPT_AHEAD, 1), (NEITHER, 0)):
        root = ElementTree.fromstring(svg.draw(charts_of(made)[0]))
        assert len(list(root.iter("path"))) == marks


def test_figures_are_png_files(tmp_path):
    paths = png.write(charts_of(REACHED), tmp_path)
    assert paths is not None
    assert [path.name for path in paths] == ["loss.png", "loss-seconds.png", "alpha.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_without_matplotlib_there_are_no_figures(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert png.write(charts_of(REACHED), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_control_characters_do_not_reach_the_terminal():
    assert printable("a\n\tb\x1b[31m\x00é") == "a\n\tb\ufffd[31m\ufffdé"


def test_a_sample_has_lines_that_end_as_on_windows():
    assert printable("one\r\n\r\ntwo\rthree") == "one\n\ntwo\ufffdthree"
