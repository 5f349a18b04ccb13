"""What a chart shows: its ticks, and where things stand on its axes."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spherelm.plots import png, svg
from spherelm.plots.chart import (
    COLOURS,
    Axis,
    Chart,
    Role,
    Series,
    Span,
    log_ticks,
    slug,
    ticks,
    token_unit,
)
from spherelm.plots.place import Box, crosses, free_place, text_width


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1.5, 2.9, ["1.50", "1.75", "2.00", "2.25", "2.50", "2.75"]),
        (0, 0.42, ["0.0", "0.1", "0.2", "0.3", "0.4"]),
        (0, 9800, ["0", "2000", "4000", "6000", "8000"]),
        (0, 130, ["0", "25", "50", "75", "100", "125"]),
    ],
)
def test_ticks_are_round_and_written_alike(low: float, high: float, labels: list[str]) -> None:
    found = ticks(low, high)
    assert [label for _, label in found] == labels
    assert [value for value, _ in found] == pytest.approx([float(label) for label in labels])


def test_ticks_of_layers_are_whole() -> None:
    assert [label for _, label in ticks(1, 4, whole=True)] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (72, 289, [80, 100, 120, 150, 200, 250]),
        (95, 130, [95, 100, 105, 110, 115, 120, 125, 130]),
        (3.011, 3.049, [3.02, 3.03, 3.04]),
        (20, 200, [20, 30, 50, 70, 100, 150, 200]),
        (9, 2000, [10, 20, 50, 100, 200, 500, 1000, 2000]),
        (0.5, 3e5, [1, 10, 100, 1e3, 1e4, 1e5]),
        (1, 1e30, [1, 1e4, 1e8, 1e12, 1e16, 1e20, 1e24, 1e28]),
    ],
)
def test_log_ticks_are_log_ticks(low: float, high: float, values: list[float]) -> None:
    assert [value for value, _ in log_ticks(low, high)] == pytest.approx(values, rel=1e-12)


def test_tokens_are_counted_in_units_of_which_there_are_two() -> None:
    counts = (1, 1999, 2000, 1.9e6, 2e6, 1.9e9, 2e9, 4e11)
    units = [1.0, 1.0, 1e3, 1e3, 1e6, 1e6, 1e9, 1e9]
    assert [token_unit(count)[0] for count in counts] == units
    assert [token_unit(count)[1] for count in (0, 2e6)] == ["tokens", "million tokens"]


def test_any_range_has_ticks_enough_and_not_too_many() -> None:
    for low in (1.0, 1.3, 7.7, 76.0, 99.0, 950.0):
        for ratio in (1.01, 1.3, 1.99, 2.0, 3.0, 4.7, 10.0, 33.0, 250.0, 1e4, 1e9, 1e40):
            assert 3 <= len(log_ticks(low, low * ratio)) <= 8, (low, ratio)


@pytest.mark.parametrize("log", [True, False])
def test_a_range_holds_all_values_with_room_around_them(log: bool) -> None:
    shown = Axis("y", log=log).over([3.0, 5.0, 90.0], margin=0.06)
    for value in (3.0, 5.0, 90.0):
        assert 0.04 < shown.share(value) < 0.96
    one = Axis("y", log=log).over([3.0], margin=0.06)
    assert one.share(3.0) == pytest.approx(0.5)
    assert Axis("y", log=log).over([], margin=0.06).ticks


def test_equal_ratios_are_equal_distances_on_a_logarithmic_axis() -> None:
    shown = Axis("x", log=True).over([1024, 32768], margin=0.0)
    shares = [shown.share(1024 * 2**i) for i in range(6)]
    assert shares == pytest.approx([i / 5 for i in range(6)])


def test_where_an_axis_begins_and_ends_can_be_said() -> None:
    shown = Axis("y", from_zero=True, top=6.0).over([3.0, 9.0], margin=0.1)
    assert (shown.low, shown.high) == (0.0, pytest.approx(6.6))


def test_half_a_layer_is_shown_as_a_part_of_a_whole() -> None:
    shown = Axis("layer", whole=True).over([0.0, 0.5], margin=0.02)
    assert [label for _, label in shown.ticks] == ["0", "1"]


def test_a_name_is_one_for_a_file_and_an_address() -> None:
    assert slug("Budget", "0.5B", "s_z") == "budget-05b-s-z"


def test_whole_numbers_are_told_to_the_last_digit() -> None:
    line = Series("a", "gpt", [(1_234_567, 0.1234567), (2_345_678, 3)])
    (curve,) = ElementTree.fromstring(
        svg.draw(Chart("a", "", "", Axis("x"), Axis("y"), [line]))
    ).iter("polyline")
    told = json.loads(curve.get("data-values", ""))
    assert told == [[1_234_567, 0.12346], [2_345_678, 3]]


def test_a_band_is_inside_the_picture() -> None:
    line = Series("nGPT", "ngpt", [(1, 0.5), (2, 0.6)], band=[(1, 0.1, 0.9), (2, 0.2, 1.4)])
    chart = Chart("a", "A", "", Axis("x"), Axis("y"), [line])
    assert chart.y_range.low < 0.1
    assert chart.y_range.high > 1.4
    assert svg.draw(chart).count("<polygon") == 1


def test_labels_stay_in_the_picture_and_apart() -> None:
    lines = [Series(str(i), "ngpt", [(0, 1.0), (1, 0.0)]) for i in range(4)]  # all end at the floor
    chart = Chart("a", "A", "", Axis("x"), Axis("y", from_zero=True), lines)
    heights = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*class="label', svg.draw(chart))]
    assert len(heights) == 4
    assert max(heights) <= svg.HEIGHT - svg.BOTTOM
    for one, other in itertools.pairwise(sorted(heights)):
        assert other - one >= svg.LABEL_GAP - 0.1


def test_a_distribution_has_its_label_above_and_no_dots() -> None:
    points = [(0, 0.0), (1, 1.0), (2, 0.0)]
    line = Series("GPT", "gpt", points, dots=False, dotted=True)
    chart = Chart("a", "A", "", Axis("x"), Axis("y"), [line], named_at_ends=False)
    drawn = svg.draw(chart)
    (label,) = labels(drawn)
    assert label.get("y") == "14"  # above all that is drawn
    assert 'class="curve gpt dotted"' in drawn
    assert "".join(label.itertext()) == "··· GPT"
    assert "gpt-fill" not in drawn.replace('<tspan class="gpt-fill">', "")


def test_a_lone_mark_of_a_dotted_curve_is_told_from_that_of_the_other() -> None:
    lines = [Series("plain", "gpt", [(1, 1.0)]), Series("tied", "gpt", [(1, 0.9)], dotted=True)]
    chart = Chart("a", "A", "", Axis("x"), Axis("y"), lines, named_at_ends=False)
    root = ElementTree.fromstring(svg.draw(chart))
    marks = [mark.get("class") for mark in root.iter("circle")]
    assert marks == ["gpt-fill", "hollow gpt"]
    assert [name.text for name in root.iter("tspan")] == ["● plain", "○ tied"]
    figure = pytest.importorskip("matplotlib.figure").Figure()
    png.draw(figure, chart)
    plain, tied = figure.axes[0].lines
    assert plain.get_markerfacecolor() == plain.get_markeredgecolor()
    assert tied.get_markerfacecolor() == "white"


def test_values_are_told_by_the_page_and_by_the_file() -> None:
    band = [(1, 0.5, 2.0), (2, 0.25, 0.375)]
    line = Series('a "b"', "gpt", [(1, 1.23456789), (2, 0.3)], band=band)
    chart = Chart("a", "A", "", Axis("layer"), Axis("y"), [line])
    root = ElementTree.fromstring(svg.draw(chart))
    (curve,) = root.iter("polyline")
    assert json.loads(curve.get("data-values", "")) == [
        [1, 1.2346, 0.5, 2.0],
        [2, 0.3, 0.25, 0.375],
    ]
    assert (root.get("data-x"), curve.get("data-label")) == ("layer", 'a "b"')
    assert len(list(root.iter("title"))) == 1  # the chart's own
    assert "<title>a &quot;b&quot;\nlayer: 1\ny: 1.235</title>" in svg.draw_file(chart)


def test_no_word_of_a_chart_becomes_markup() -> None:
    evil = '<i> & "it"'
    line = Series(evil, "gpt", [(1, 1.0), (2, 0.5)])
    chart = Chart("a", evil, evil, Axis(evil), Axis(evil), [line], Span(1, 2, 0.7, evil))
    for drawn in (svg.draw(chart), svg.draw_file(chart)):
        root = ElementTree.fromstring(drawn.replace(' xmlns="http://www.w3.org/2000/svg"', ""))
        assert (root.get("data-x"), root.get("data-y")) == (evil, evil)
        assert root.findtext("title") == root.findtext("desc") == evil
        told = [text.text for text in root.iter("text")]
        assert told.count(evil) == 4  # two axes, the curve, the span
        assert not list(root.iter("i"))


@pytest.mark.parametrize("count", [1, 3, 9, 40])
def test_labels_of_an_axis_do_not_touch(count: int) -> None:
    marks = [(10.0 * n, f"{10_000_000 * n:,}") for n in range(count)]
    line = Series("a", "gpt", [(0, 1.0), (10.0 * count, 2.0)])
    chart = Chart("a", "", "", Axis("x", ticks=marks), Axis("y"), [line])
    texts = ElementTree.fromstring(svg.draw(chart)).iter("text")
    shown = [t for t in texts if t.get("class") == "quiet" and t.get("text-anchor") == "middle"]
    assert 1 <= len(shown) <= min(count, 5)
    ends = [(float(t.get("x", "")), text_width(t.text or "", svg.LARGEST_TYPE)) for t in shown]
    for (x, width), (other, its) in itertools.pairwise(ends):
        assert x + width / 2 < other - its / 2


def test_a_beginning_above_the_picture_is_told() -> None:
    line = Series("a", "gpt", [(0, 9), (1, 3), (2, 2)])
    assert "are cut off" in Chart("a", "", "", Axis("x"), Axis("y", top=3), [line]).cut
    assert Chart("a", "", "", Axis("x"), Axis("y"), [line]).cut == ""


def test_what_is_outside_of_the_picture_is_cut_off() -> None:
    line = Series("a", "gpt", [(1, 90.0), (2, 1.0)])
    root = ElementTree.fromstring(svg.draw(Chart("a", "", "", Axis("x"), Axis("y", top=2), [line])))
    (area,) = root.iter("clipPath")
    (curve,) = root.iter("polyline")
    (group,) = (g for g in root.iter("g") if curve in list(g))
    assert group.get("clip-path") == f"url(#{area.get('id')})"
    assert float(curve.get("points", "").split()[0].split(",")[1]) < float(area[0].get("y", ""))


def test_a_file_of_pictures_has_the_ranges_and_ticks_of_the_page() -> None:
    figure_of = pytest.importorskip("matplotlib.figure").Figure
    line = Series("a", "gpt", [(1, 1.0), (4, 90.0), (16, 2.0)])
    for log in (False, True):
        x = Axis("x", log=log, ticks=[(1, "one"), (16, "sixteen")])
        chart = Chart("a", "A", "", x, Axis("y", log=not log), [line])
        figure = figure_of(figsize=(7.2, 4.4), layout="constrained")
        png.draw(figure, chart)
        (axes,) = figure.axes
        assert axes.get_xscale() == ("log" if log else "linear")
        assert axes.get_yscale() == ("linear" if log else "log")
        assert axes.get_xlim() == pytest.approx((chart.x_range.low, chart.x_range.high))
        assert axes.get_ylim() == pytest.approx((chart.y_range.low, chart.y_range.high))
        assert [each.get_text() for each in axes.get_xticklabels()] == ["one", "sixteen"]
        shown = [each.get_text() for each in axes.get_yticklabels()]
        assert shown == [label for _, label in chart.y_range.ticks]


def labels(drawn: str) -> list[ElementTree.Element]:
    texts = ElementTree.fromstring(drawn).iter("text")
    return [text for text in texts if "label" in text.get("class", "").split()]


def boxes(drawn: str) -> list[Box]:
    """Where labels stand in the largest type."""
    found = []
    for label in labels(drawn):
        small = "span-text" in label.get("class", "")
        size = svg.LARGEST_TYPE * (0.85 if small else 1)
        x, y = float(label.get("x", "")), float(label.get("y", ""))
        for part in list(label) or [label]:  # a row of a legend is one text of several names
            width = text_width(part.text or "", size)
            x += float((part.get("dx") or "0em").removesuffix("em")) * size
            left = x - width / 2 if label.get("text-anchor") == "middle" else x
            found.append((left, y - 0.5 * size, left + width, y + 0.5 * size))
            x += width
    return found


def curves(drawn: str) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(drawn)
    area = next(root.iter("clipPath"))[0]
    top = float(area.get("y", ""))  # what is above it is not shown
    return [
        [(float(x), max(top, float(y))) for x, y in (p.split(",") for p in points.split())]
        for points in (line.get("points", "") for line in root.iter("polyline"))
    ]


def falling(seed: int, name: str, role: Role, share: float = 1.0) -> Series:
    """A noisy curve that ends at a share of the others' way."""
    noise = random.Random(seed)
    points = [(n, 5 / (1 + n) ** 0.3 + 0.3 * noise.random()) for n in range(round(40 * share))]
    return Series(name, role, points)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shares", [(1.0, 1.0), (1.0, 0.4), (0.5, 0.7, 1.0), (1.0,) * 12])
def test_no_label_covers_a_curve(shares: tuple[float, ...], seed: int) -> None:
    """Curves that end early, many curves, long names, and a text in the picture itself."""
    roles = (*COLOURS, *COLOURS)
    names = [("GPT 1.482", "nGPT 1.381", "a run with a long name")[i % 3] for i in range(12)]
    lines = [falling(seed + 7 * i, names[i], roles[i], share) for i, share in enumerate(shares)]
    for left, text in itertools.product((3.0, 12.0, 30.0), ("1.33× fewer tokens", "1.33×,\n0.75×")):
        span = Span(left, 39.0, 1.9, text)
        chart = Chart("a", "A", "", Axis("x", from_zero=True), Axis("y", top=3.0), lines, span)
        drawn = svg.draw(chart)
        assert chart.labels_at_ends == (set(shares) == {1.0} and len(shares) < 3)
        found = boxes(drawn)
        assert len(found) == len(lines) + len(text.splitlines())
        _, _, width, height = map(float, ElementTree.fromstring(drawn).get("viewBox", "").split())
        for box in found:
            assert not any(crosses(box, line) for line in curves(drawn))
            assert min(box) >= 0
            assert box[2] <= width
            assert box[3] <= height
        for one, other in itertools.combinations(found, 2):
            beside = one[2] <= other[0] or other[2] <= one[0]
            assert beside or abs(one[1] - other[1]) >= 0.8 * svg.LARGEST_TYPE, (one, other)


DRAWN = [
    path
    for path in sorted((Path(__file__).parents[2] / "docs").rglob("*.svg"))
    if path.read_text(encoding="utf-8").startswith('<svg class="chart"')
]


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_nothing_covers_anything_in_the_pictures_of_the_documentation(path: Path) -> None:
    """Those of runs that are gone, too, which no command draws again."""
    drawn = path.read_text(encoding="utf-8").replace(' xmlns="http://www.w3.org/2000/svg"', "")
    found = boxes(drawn)
    assert found
    for box in found:
        assert not any(crosses(box, line) for line in curves(drawn))
    texts = list(ElementTree.fromstring(drawn).iter("text"))
    (title,) = (text for text in texts if text.get("transform"))
    beside = float(re.findall(r"[\d.]+", title.get("transform", ""))[0]) + svg.LARGEST_TYPE / 2
    for tick in (text for text in texts if text.get("text-anchor") == "end"):
        width = text_width(tick.text or "", svg.LARGEST_TYPE)
        assert float(tick.get("x", "")) - width >= beside


def test_the_documentation_has_pictures() -> None:
    assert len(DRAWN) > 30


def test_labels_of_a_file_of_pictures_do_not_cover_curves_either() -> None:
    figure_of = pytest.importorskip("matplotlib.figure").Figure
    pytest.importorskip("matplotlib.backends.backend_agg")
    lines = [falling(1, "GPT 1.482", "gpt"), falling(2, "nGPT 1.381", "ngpt", 0.6)]
    for left in (2.0, 10.0, 30.0):
        span = Span(left, 39.0, 1.9, "1.33× fewer tokens")
        chart = Chart("a", "A", "", Axis("x", from_zero=True), Axis("y"), lines, span)
        figure = figure_of(figsize=(7.2, 4.4), layout="constrained")
        png.draw(figure, chart)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        (legend,) = figure.legends
        assert not legend.get_window_extent().overlaps(axes.get_window_extent())
        (text,) = axes.texts
        box = text.get_window_extent()
        for line in axes.lines:
            way = axes.transData.transform(line.get_xydata()).tolist()
            assert not crosses((box.x0, box.y0, box.x1, box.y1), way), line.get_label()


def test_where_a_line_crosses_a_box() -> None:
    box = (0.0, 0.0, 10.0, 10.0)
    assert crosses(box, [(-5, 5), (15, 5)])
    assert crosses(box, [(-1, 5), (5, 11)])  # over a corner
    assert not crosses(box, [(-5, 2), (2, -5)])  # past a corner
    assert not crosses(box, [(-5, 12), (15, 12)])
    assert crosses(box, [(5, 5), (6, 6)])  # all inside
    assert crosses(box, [(5, 5)])
    assert not crosses(box, [(0, -5), (0, 15)])  # along its edge


def test_a_place_is_the_nearest_that_is_free() -> None:
    inside = (0.0, 0.0, 200.0, 100.0)
    wall = [(100.0, 0.0), (100.0, 100.0)]
    found = free_place(40, 10, (104.0, 50.0), inside, [wall])
    assert found is not None
    assert 106 <= found[0] < 116  # right of the wall, as near as it may be
    assert found[1] <= 50 <= found[1] + 10
    crowded = [[(0.0, y), (200.0, y)] for y in range(0, 101, 10)]
    assert free_place(40, 10, (104.0, 50.0), inside, crowded) is None
