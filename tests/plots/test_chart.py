"""What a chart shows: its ticks, and where things stand on its axes."""

from __future__ import annotations

import itertools
import re

import pytest

from spherelm.plots import svg
from spherelm.plots.chart import Axis, Chart, Series, log_ticks, ticks


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


def test_a_distribution_has_its_label_at_its_top_and_no_dots() -> None:
    points = [(0, 0.0), (1, 1.0), (2, 0.0)]
    line = Series("GPT", "gpt", points, dots=False, dotted=True, label_at_top=True)
    drawn = svg.draw(Chart("a", "A", "", Axis("x"), Axis("y"), [line]))
    place = re.search(r'<text x="([\d.]+)"[^>]*class="label', drawn)
    assert place is not None
    assert svg.LEFT < float(place[1]) < svg.WIDTH - svg.RIGHT  # not at the end
    assert 'class="curve gpt dotted"' in drawn
    assert "gpt-fill" not in drawn.replace("label gpt-fill", "")
    assert "<title>GPT\nx: 1\ny: 1</title>" in drawn  # what the pointer finds
