"""The pages of three verbs, `compare`, `report` and `inspect`, are one family: held to it by a real
browser, at a desk, on a phone, in the dark and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spherelm.compare.report import render as render_comparison
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.inspect.insides import look_inside
from spherelm.inspect.page import render as render_insides
from spherelm.model.config import Arch
from spherelm.plots import svg
from spherelm.plots.chart import COLOURS
from spherelm.plots.page import Named, Part, document, figure, sample, table
from spherelm.training.report.history import History
from spherelm.training.report.history_page import render as render_history
from spherelm.training.report.samples import Sample
from tests.browser import Page, browser
from tests.compare.made import ENVIRONMENT, comparison, side
from tests.saved_runs import byte_model

NAMES = ("compare", "report", "twelve", "inspect")
PHONE, DESK, PAPER = 390, 1280, 718
"""Widths in pixels; that of A4 between its margins."""
TEXT = "def way(self):\n    return <turn> & 'turn'\n" * 3
LONG = "a-run-with-a-very-long-name" * 4
TWELVE: list[tuple[Arch, int, str]] = [
    ("gpt" if i % 2 else "ngpt", 30 - 5 * (i % 3), f"sweep-lr{i}e-3-seed{i}") for i in range(12)
]
"""A report of as many runs as it takes, of different lengths."""


def history(arch: Arch, steps: int, folder: str) -> History:
    """A run that was evaluated at every tenth step, and may still be going."""
    config = side(arch, [3.0, 2.5, 2.2], 0.1).config
    metrics: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        line = {"step": step, "tokens": 512 * step, "loss": 5 / step**0.3 + 0.1 * (step % 3)}
        line |= {"lr": 0.001 * step, "grad_norm": 1 + step % 4}
        if step % 10 == 0:
            line["val_loss"] = 5 / step**0.3
            if arch == "ngpt":
                line |= {"alpha_attn": [0.1, 0.3], "s_z": 0.2 * step}
        metrics.append(line)
    seconds = dict.fromkeys(range(1, steps + 1), 0.1)
    return History(folder, config, dict(ENVIRONMENT), metrics, seconds)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    runs = [history("gpt", 30, "runs/gpt"), history("ngpt", 20, f"runs/{LONG}")]
    samples = {"runs/gpt": Sample("def", " f(<x>):\n" * 3), f"runs/{LONG}": "no checkpoint yet"}
    models = [
        look_inside(byte_model(arch=arch), ByteTokenizer(), TEXT, run=LONG, label=label)
        for arch, label in (("gpt", "GPT"), ("ngpt", "nGPT"))
    ]
    made = comparison(gpt=[5.0, 4.0, 3.0, 2.2], ngpt=[4.0, 2.5, 2.0, 1.5])
    content = {
        "compare": render_comparison(made, "inside/index.html"),
        "report": render_history(runs, samples),
        "twelve": render_history([history(*run) for run in TWELVE]),
        "inspect": render_insides(models, "a text"),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, html in content.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in content}


@pytest.mark.parametrize("name", NAMES)
def test_all_have_the_same_bones(pages: dict[str, Path], name: str) -> None:
    """The style, the contents, the values under the pointer come from one place."""
    html = pages[name].read_text(encoding="utf-8")
    shared = pages["report"].read_text(encoding="utf-8")
    script = r"<script>\s*\"use strict\";\s*{\s*const NS.*</script>"
    for part in (r"<style>.*?\.sixth-name", script):
        found, same = (re.search(part, page, re.DOTALL) for page in (html, shared))
        assert found is not None
        assert same is not None
        assert found[0] == same[0]
    parts = re.findall(r'<section class="card" id="([^"]+)"', html)
    contents = re.search(r'<nav class="contents".*?</nav>', html, re.DOTALL)
    assert contents
    assert re.findall(r'href="#([^"]+)"', contents[0]) == parts
    assert len(parts) == len(set(parts)) >= 6


def luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """As the WCAG define it: from 1 to 21; 4.5 is enough for text, 3 for lines."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def from_hex(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def test_no_word_of_a_page_becomes_markup() -> None:
    evil = '<i> & "it"'
    content = figure(sample(evil, evil), evil)
    content += table([evil, Named(evil, "gpt")], [(evil, evil)], stacked=True)
    written = document(evil, evil, "", [Part("a", evil, content)])
    assert "<i>" not in written
    # Title, heading, contents, part, prompt, text, caption; two heads, two cells, a cell's label.
    assert written.count("&lt;i&gt; &amp; &quot;it&quot;") == 12


@pytest.mark.parametrize("ground", [0, 1])
def test_every_colour_can_be_read_on_every_ground(ground: int) -> None:
    variables = dict(re.findall(r"--(\w+): (#\w{6})", svg.GROUNDS[ground]))
    for behind in (variables["card"], variables["page"]):
        written = [variables["text"], variables["quiet"], *(c[ground] for c in COLOURS.values())]
        for colour in written:
            assert contrast(from_hex(colour), from_hex(behind)) >= 4.5, (colour, behind)


# --- in a real browser ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(params=NAMES)
def page(request: pytest.FixtureRequest, chromium: Page, pages: dict[str, Path]) -> Page:
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.medium()
    chromium.size(DESK)
    chromium.open(pages[request.param])
    return chromium


def test_it_says_nothing_and_asks_for_nothing(page: Page) -> None:
    page.run("1")
    assert page.errors == []
    assert len(page.requests) == 1
    assert page.requests[0].startswith("file://")


WIDER = """
(() => {
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest(".scroll, .contents ul, svg, .tip")) continue;  // these can be pushed aside
    const box = e.getBoundingClientRect();
    if (box.right > innerWidth + 0.5 || box.left < -0.5) found.push(e.outerHTML.slice(0, 80));
  }
  return [document.documentElement.scrollWidth, found.slice(0, 5)];
})()
"""


@pytest.mark.parametrize("width", [320, PHONE, DESK])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    page.size(width)
    assert page.run(WIDER) == [width, []]


LABELS = """
[...document.querySelectorAll("svg.chart")].map(c => ({
  name: c.getAttribute("aria-labelledby") || c.getAttribute("aria-label"),
  size: [c.viewBox.baseVal.width, c.viewBox.baseVal.height],
  texts: [...c.querySelectorAll("text")].map(t => {
    const b = t.getBBox(), turned = t.hasAttribute("transform");
    return {text: t.textContent, label: t.classList.contains("label"), turned,
      box: [b.x, b.y, b.x + b.width, b.y + b.height]};
  }),
  top: +c.dataset.top - 6,
  curves: [...c.querySelectorAll("polyline")].map(p => [...p.points].map(q => [q.x, q.y])),
}))
"""


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_label_covers_a_curve_or_another_text(page: Page, width: int) -> None:
    """As the browser measures its own letters."""
    from spherelm.plots.place import crosses

    page.size(width)
    charts = page.run(LABELS)
    assert len(charts) >= 3
    for chart in charts:
        name, texts = chart["name"], chart["texts"]
        curves = [[(x, max(y, chart["top"])) for x, y in line] for line in chart["curves"]]
        level = [t for t in texts if not t["turned"]]
        for text in level:
            left, top, right, bottom = box = text["box"]
            assert left >= 0, (name, text)
            assert right <= chart["size"][0], (name, text)
            assert bottom <= chart["size"][1] + 2, (name, text)
            slim = (left, top + 0.2 * (bottom - top), right, bottom - 0.2 * (bottom - top))
            if text["label"]:
                assert not any(crosses(slim, line) for line in curves), (name, text)
            for other in level:
                if other is text:
                    continue
                x, y, to_x, to_y = other["box"]
                apart = right <= x or to_x <= left
                height = min(bottom - top, to_y - y)
                assert apart or abs((top + bottom) - (y + to_y)) / 2 >= 0.55 * height, (
                    name,
                    text,
                    other,
                    box,
                )


COLOURS_OF_TEXTS = """
(() => {
  const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const read = text => {  // any colour of CSS as red, green, blue, and how much covers
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = text;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data].map(v => v / 255);
  };
  const over = (a, b) => a.slice(0, 3).map((v, i) => v * a[3] + b[i] * (1 - a[3]));
  const ground = e => {
    if (!e) return [1, 1, 1];
    const own = read(getComputedStyle(e).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, ground(e.parentElement));
  };
  const found = new Map();
  const add = (kind, e, colour) => {
    const at = ground(e.closest("svg") ? e.closest("svg").parentElement : e);
    const key = JSON.stringify([kind, colour, at.map(v => v.toFixed(3))]);
    if (!found.has(key)) found.set(key, {kind, colour: read(colour).slice(0, 3), ground: at,
      where: e.outerHTML.slice(0, 80)});
  };
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim()) continue;
    if (e.closest("script, style, title, desc, noscript")) continue;
    const style = getComputedStyle(e);
    add("text", e, e.closest("svg") ? style.fill : style.color);
  }
  for (const line of document.querySelectorAll("svg.chart polyline.curve"))
    add("curve", line, getComputedStyle(line).stroke);
  return [...found.values()];
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_can_be_read_in_the_light_and_in_the_dark(page: Page, scheme: str) -> None:
    page.medium(scheme=scheme)
    found = page.run(COLOURS_OF_TEXTS)
    assert {each["kind"] for each in found} == {"text", "curve"}
    behind = {round(luminance(each["ground"]), 1) for each in found if each["kind"] == "curve"}
    assert behind == ({1.0} if scheme == "light" else {0.0})
    for each in found:
        least = 4.5 if each["kind"] == "text" else 3.0
        assert contrast(each["colour"], each["ground"]) >= least, each


def test_on_paper_it_is_light_whole_and_without_what_one_clicks(page: Page) -> None:
    page.medium("print", "dark")
    page.size(PAPER)
    assert page.run(WIDER) == [PAPER, []]
    assert page.run("getComputedStyle(document.querySelector('.contents')).display") == "none"
    text = page.run("getComputedStyle(document.body).color")
    assert text == "rgb(27, 31, 36)"  # dark on white, whatever the screen likes
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > innerWidth).length"
    assert page.run(cut) == 0
    pdf = page.printed()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2


def test_pointing_at_a_chart_tells_its_values(page: Page) -> None:
    page.run("document.querySelector('svg.chart').scrollIntoView({block: 'center'})")
    page.run("new Promise(done => setTimeout(done, 100))")  # what moves takes values away
    chart = "document.querySelector('svg.chart')"
    box = page.run(f"(b => [b.x, b.y, b.width, b.height])({chart}.getBoundingClientRect())")
    curves = page.run(
        f"[...{chart}.querySelectorAll('polyline')].map(p => [p.dataset.label, "
        "[...p.points].map(q => q.x), JSON.parse(p.dataset.values)])"
    )
    label, places, values = curves[0]
    width = page.run(f"{chart}.viewBox.baseVal.width")
    at = len(places) // 2
    page.point_at(box[0] + places[at] * box[2] / width, box[1] + box[3] / 2)
    tip = "document.querySelector('.tip')"
    assert page.run(f"{tip}.hidden") is False
    said = page.run(f"[...{tip}.children].map(e => e.textContent)")
    told = {line.rpartition(": ")[0]: line.rpartition(": ")[2] for line in said}
    assert float(told[label].replace(",", "")) == pytest.approx(values[at][1], rel=1e-3)
    edge = page.run(f"(b => [b.left, b.right])({tip}.getBoundingClientRect())")
    assert edge[0] >= 0
    assert edge[1] <= DESK
    assert page.run(f"{chart}.querySelectorAll('.hover-dot').length") >= 1
    page.point_at(2, 2)
    assert page.run(f"{tip}.hidden") is True
    assert page.run("document.querySelectorAll('.hover').length") == 0
    page.run(f"{chart}.focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
    assert page.run(f"{tip}.hidden") is False  # without a pointer, too
    assert page.errors == []


def test_a_touch_tells_values_and_leaves_the_chart_in_sight(page: Page) -> None:
    page.size(PHONE)
    chart, tip = "document.querySelector('svg.chart')", "document.querySelector('.tip')"
    page.run(f"{chart}.scrollIntoView({{block: 'center'}})")
    page.run("new Promise(done => setTimeout(done, 100))")
    box = page.run(f"(b => [b.x, b.y, b.width, b.height])({chart}.getBoundingClientRect())")
    place = {"x": box[0] + 0.7 * box[2], "y": box[1] + box[3] / 2}
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[place])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert page.run(f"{tip}.hidden") is False
    left, right, bottom = page.run(
        f"(b => [b.left, b.right, b.bottom])({tip}.getBoundingClientRect())"
    )
    assert left >= 0
    assert right <= PHONE
    assert bottom <= box[1]


def test_the_contents_lead_to_every_part(page: Page) -> None:
    page.size(PHONE)
    links = page.run("[...document.querySelectorAll('.contents a')].map(a => a.hash)")
    page.run("document.documentElement.style.scrollBehavior = 'auto'")
    for link in (links[1], links[-1]):
        page.run(f"document.querySelector('.contents a[href=\"{link}\"]').click()")
        top, bar = page.run(
            f"[document.querySelector('{link}').getBoundingClientRect().top, "
            "document.querySelector('.contents').getBoundingClientRect().bottom]"
        )
        assert bar - 1 <= top <= 900  # in sight, and not under the contents
