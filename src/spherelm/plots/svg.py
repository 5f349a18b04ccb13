"""A chart as SVG, inline in a page that includes `STYLE` or as a file, in light and dark mode.

The page defines --text, --quiet, --grid and --card; a file has its own. No label covers a curve,
even in the largest type that a picture is shown with: labels stand beside or above the picture, and
the text of a span is placed clear of curves.

Inline, a curve carries its values for `hover` to show; in a file, each mark has a title instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from spherelm import durable
from spherelm.plots.chart import COLOURS, Chart, Series
from spherelm.plots.place import Line, free_place, text_width

WIDTH, HEIGHT = 720, 400
TOP, BOTTOM = 20, 78
"""Room above the plotted area, and below it for tick labels and a title."""
GAP = 10
"""Between the end of a line and its label."""
LABEL_GAP = 26
"""Least distance between labels at the ends of lines, enough for the largest type."""
LARGEST_TYPE = 22
"""Font size in a picture that is shown small: on a phone, or beside another."""
SPAN_TYPE = 0.85
"""Font size of a span's text, relative to the picture's."""
SPAN_ROW = 1.2 * SPAN_TYPE * LARGEST_TYPE
"""Height of one line of that text."""
BETWEEN_KEYS = 1.2
"""Space between two names in a legend, in em."""

GROUNDS = (
    "--page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --quiet: #59636e; --grid: #d9dee4;",
    "--page: #14171b; --card: #1d2127; --text: #e6e9ed; --quiet: #a3adb8; --grid: #3a424c;",
)
"""Colours of everything but the curves, light and dark."""


def _variables(ground: int) -> str:
    return " ".join(f"--{role}: {colours[ground]};" for role, colours in COLOURS.items())


STYLE = f"""
:root {{ {GROUNDS[0]} {_variables(0)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {GROUNDS[1]} {_variables(1)} }} }}
svg.chart {{ width: 100%; height: auto; display: block; font-size: 15px; }}
svg.chart text {{ fill: var(--text); }}
svg.chart .quiet {{ fill: var(--quiet); }}
svg.chart .grid {{ stroke: var(--grid); stroke-width: 1; }}
svg.chart .curve {{ fill: none; stroke-width: 2.5; stroke-linejoin: round; }}
svg.chart .dotted {{ stroke-dasharray: 2 6; stroke-linecap: round; }}
svg.chart .hollow {{ fill: var(--card); stroke-width: 2; }}
svg.chart .band {{ opacity: .16; }}
svg.chart .touch {{ fill: transparent; }}
svg.chart .span {{ stroke: var(--text); stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }}
svg.chart .span-end {{ fill: var(--text); }}
svg.chart .label {{ font-weight: 600; }}
svg.chart .span-text {{ font-size: {SPAN_TYPE}em; }}
@media screen and (max-width: 600px) {{ svg.chart {{ font-size: {LARGEST_TYPE}px; }} }}
""" + "\n".join(
    f"svg.chart .{role} {{ stroke: var(--{role}); }} "
    f"svg.chart .{role}-fill {{ fill: var(--{role}); }}"
    for role in COLOURS
)


def draw(chart: Chart) -> str:
    """The SVG element of a chart."""
    return "\n".join(_Drawing(chart, titles=False).elements())


def write(charts: Sequence[Chart], folder: Path) -> None:
    """Write each chart as NAME.svg, and delete files of `folder` that an earlier call left."""
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.iterdir():
        if earlier.stem not in {chart.name for chart in charts} and not earlier.is_dir():
            earlier.unlink()
    for chart in charts:
        durable.write_text(folder / f"{chart.name}.svg", draw_file(chart))


def draw_file(chart: Chart) -> str:
    """An SVG file of a chart."""
    opening, rest = "\n".join(_Drawing(chart, titles=True).elements()).split(">", 1)
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    font = "svg { font-family: system-ui, sans-serif; background: var(--card); }"
    return f"{opening} {namespace}>\n<style>{STYLE}\n{font}</style>{rest}\n"


class _Drawing:
    def __init__(self, chart: Chart, titles: bool) -> None:
        self.chart, self.titles = chart, titles
        self.x_range, self.y_range = chart.x_range, chart.y_range
        self.named = [line for line in chart.series if line.points]
        ticks = [text_width(label, LARGEST_TYPE) for _, label in self.y_range.ticks]
        self.left = 46 + round(max(ticks, default=0))
        if chart.labels_at_ends:
            widest = max((text_width(line.label, LARGEST_TYPE) for line in self.named), default=0)
            self.legend, self.right = list[list[Series]](), WIDTH - round(widest) - GAP - 8
        else:
            self.legend, self.right = _rows(self.named), WIDTH - 24
        above = len(self.legend) * LABEL_GAP
        self.top, self.height = TOP + above, HEIGHT + max(0, above - LABEL_GAP)
        self.span_text = self._span_text()
        if chart.span is not None and self.span_text is None:  # no room inside: rows of its own
            rows = LABEL_GAP * len(chart.span.text.splitlines())
            self.top, self.height = self.top + rows, self.height + rows

    @property
    def floor(self) -> int:
        return self.height - BOTTOM

    def x(self, value: float) -> float:
        return round(self.left + self.x_range.share(value) * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        return round(self.floor - self.y_range.share(value) * (self.floor - self.top), 1)

    def elements(self) -> Iterator[str]:
        chart = self.chart
        ids = f"{chart.name}-title {chart.name}-description"
        box = f"0 0 {WIDTH} {self.height}"
        axes = f'data-x="{escape(chart.x.label)}" data-y="{escape(chart.y.label)}"'
        area = f'data-top="{self.top}" data-floor="{self.floor}"'
        yield (
            f'<svg class="chart" viewBox="{box}" role="img" aria-labelledby="{ids}" {axes} {area}>'
        )
        yield f'<title id="{chart.name}-title">{escape(chart.title)}</title>'
        yield f'<desc id="{chart.name}-description">{escape(chart.description)}</desc>'
        yield from self._axes()
        yield (
            f'<clipPath id="{chart.name}-area"><rect x="0" y="{self.top - 6}" width="{WIDTH}" '
            f'height="{self.floor - self.top + 6}"/></clipPath>'
        )
        yield f'<g clip-path="url(#{chart.name}-area)">'
        for line in self.named:
            yield from self._line(line)
        yield "</g>"
        yield from self._legend() if self.legend else self._labels_at_ends()
        yield from self._span()
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        left, floor, end = self.left, self.floor, self.right
        for value, label in self.y_range.ticks:
            y = self.y(value)
            yield f'<line class="grid" x1="{left}" x2="{end}" y1="{y}" y2="{y}"/>'
            yield _text(self.left - 10, y, label, "end", "quiet", middle=True)
        for value, label in self._x_ticks():
            x = self.x(value)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 6}"/>'
            yield _text(x, floor + 28, label, "middle", "quiet")
        yield f'<line class="grid" x1="{left}" x2="{end}" y1="{floor}" y2="{floor}"/>'
        yield _text((self.left + end) / 2, self.height - 10, self.chart.x.label, "middle")
        centre = (self.top + floor) / 2
        yield (
            f'<text transform="translate(20 {centre:g}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.chart.y.label)}</text>"
        )

    def _x_ticks(self) -> list[tuple[float, str]]:
        """Every tick, or every second, third ... if their labels would otherwise touch."""
        ticks = list(self.x_range.ticks)
        for every in range(1, len(ticks)):
            kept = ticks[::every]
            ends = [(self.x(v), 0.5 * text_width(label, LARGEST_TYPE)) for v, label in kept]
            if all(x + half + 8 <= other - rest for (x, half), (other, rest) in pairwise(ends)):
                return kept
        return ticks[:1]

    def _line(self, line: Series) -> Iterator[str]:
        if line.band:
            high = [f"{self.x(x)},{self.y(top)}" for x, _, top in line.band]
            low = [f"{self.x(x)},{self.y(bottom)}" for x, bottom, _ in reversed(line.band)]
            yield f'<polygon class="band {line.role}-fill" points="{" ".join(high + low)}"/>'
        points = self._points(line)
        dotted = " dotted" if line.dotted else ""
        values = "" if self.titles else f' data-label="{escape(line.label)}" {_values(line)}'
        yield (
            f'<polyline class="curve {line.role}{dotted}" '
            f'points="{" ".join(f"{x},{y}" for x, y in points)}"{values}/>'
        )
        for (x, y), at in zip(points, line.points, strict=True):
            told = f"<title>{escape(self._tell(line, *at))}</title>" if self.titles else ""
            if line.dots:
                yield _mark(line, x, y, told)
            elif told:
                yield f'<circle class="touch" cx="{x}" cy="{y}" r="6">{told}</circle>'

    def _points(self, line: Series) -> Line:
        return [(self.x(x), self.y(y)) for x, y in line.points]

    def _tell(self, line: Series, x: float, y: float) -> str:
        """The tooltip of a point."""
        return f"{line.label}\n{self.chart.x.label}: {x:.4g}\n{self.chart.y.label}: {y:.4g}"

    def _labels_at_ends(self) -> Iterator[str]:
        """Names at the ends of lines, pushed apart where they would overlap."""
        ends = [(self.y(line.points[-1][1]), line) for line in self.named]
        ends.sort(key=lambda end: end[0])
        free, places = float(self.top), list[float]()
        for end, _ in ends:
            places.append(max(end, free))
            free = places[-1] + LABEL_GAP
        room = max(float(self.floor), self.top + (len(ends) - 1) * LABEL_GAP)
        for i in reversed(range(len(places))):  # keep them from running below the picture
            places[i] = min(places[i], room)
            room = places[i] - LABEL_GAP
        for (_, line), y in zip(ends, places, strict=True):
            style = f"label {line.role}-fill"
            yield _text(self.right + GAP, y, line.label, "start", style, middle=True)

    def _legend(self) -> Iterator[str]:
        """Names above the picture, each after its line's mark. A row is a single text element, so
        that its names are evenly spaced at any font size."""
        start = min(float(self.left), *(WIDTH - GAP - _row_width(row) for row in self.legend))
        for number, row in enumerate(self.legend):
            y = 14 + number * LABEL_GAP
            names = "".join(_key(line, first=line is row[0]) for line in row)
            style = 'class="label" text-anchor="start" dominant-baseline="central"'
            yield f'<text x="{start:g}" y="{y}" {style}>{names}</text>'

    def _span_text(self) -> tuple[float, float] | None:
        """The centre of the span's text: near its left end and clear of curves."""
        span = self.chart.span
        if span is None:
            return None
        left, y = self.x(span.left), self.y(span.y)
        level: Line = [(self.x(span.right), y), (left, y), (left, self.floor)]
        rows = span.text.splitlines()
        width = max(text_width(row, SPAN_TYPE * LARGEST_TYPE) for row in rows)
        height = SPAN_ROW * len(rows)
        corner = free_place(
            width,
            height,
            (left, y),
            (self.left, self.top, self.right, self.floor),
            [level, *(self._points(line) for line in self.named)],
        )
        return None if corner is None else (corner[0] + width / 2, corner[1] + height / 2)

    def _span(self) -> Iterator[str]:
        span = self.chart.span
        if span is None:
            return
        left, right, y = self.x(span.left), self.x(span.right), self.y(span.y)
        yield f'<path class="span" d="M{right},{y} H{left} V{self.floor}"/>'
        yield f'<circle class="span-end" cx="{left}" cy="{y}" r="5"/>'
        rows = span.text.splitlines()
        half = SPAN_ROW * (len(rows) - 1) / 2  # from the middle to the first and the last line
        x, y = self.span_text or ((self.left + self.right) / 2, self.top - 20 - half)
        for number, text in enumerate(rows):
            at = y - half + number * SPAN_ROW
            yield _text(x, at, text, "middle", "label span-text", middle=True)


def _key(line: Series, first: bool) -> str:
    """A name in a row of a legend."""
    room = "" if first else f' dx="{BETWEEN_KEYS}em"'
    return f'<tspan class="{line.role}-fill"{room}>{escape(_named(line))}</tspan>'


def _named(line: Series) -> str:
    """The name of a line after its mark or, without marks, after a piece of the line."""
    solid, dotted = ("■", "□") if line.square else ("●", "○")
    if not line.dots:
        solid, dotted = "—", "···"
    return f"{dotted if line.dotted else solid} {line.label}"


def _row_width(row: Sequence[Series]) -> float:
    """The width of a legend row in the largest type."""
    between = (len(row) - 1) * BETWEEN_KEYS * LARGEST_TYPE
    return between + sum(text_width(_named(line), LARGEST_TYPE) for line in row)


def _rows(lines: Sequence[Series]) -> list[list[Series]]:
    """The rows of a legend, each with as many names as fit."""
    rows = list[list[Series]]()
    for line in lines:
        if rows and _row_width([*rows[-1], line]) <= WIDTH - 2 * GAP:
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def _values(line: Series) -> str:
    """The data attribute with a curve's values: a list of [x, y] or, with a band, [x, y, low,
    high]."""
    ends = {x: (low, high) for x, low, high in line.band}
    rows = [[_short(v) for v in (x, y, *ends.get(x, ()))] for x, y in line.points]
    return f'data-values="{escape(json.dumps(rows, separators=(",", ":")))}"'


def _short(value: float) -> float:
    """Rounded to five digits, enough for reading."""
    return float(f"{value:.5g}") if value % 1 else value


def _mark(line: Series, x: float, y: float, told: str = "") -> str:
    style = f"hollow {line.role}" if line.dotted else f"{line.role}-fill"
    if line.square:
        place = f'x="{x - 3:g}" y="{y - 3:g}" width="6" height="6"'
        return f'<rect class="{style}" {place}>{told}</rect>'
    return f'<circle class="{style}" cx="{x:g}" cy="{y:g}" r="3.5">{told}</circle>'


def _text(x: float, y: float, text: str, anchor: str, style: str = "", middle: bool = False) -> str:
    baseline = ' dominant-baseline="central"' if middle else ""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{baseline}{kind}>{escape(text)}</text>'
