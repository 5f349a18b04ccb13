"""A chart as SVG: inline for a page that has `STYLE`, or as a file; both follow light and dark.

The page defines --text, --quiet, --grid and --card; a file brings its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from spherelm.plots.chart import COLOURS, Chart, Series

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 100, 160, 20, 78
"""Room around the plotted area: for tick labels, the labels at the ends of lines, and titles."""
LABEL_GAP = 26
"""Least distance between labels at the ends of lines, also with a phone's larger type."""


def _variables(ground: int) -> str:
    return " ".join(f"--{role}: {colours[ground]};" for role, colours in COLOURS.items())


STYLE = f"""
:root {{ {_variables(0)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}
svg.chart {{ width: 100%; height: auto; display: block; font-size: 15px; }}
svg.chart text {{ fill: var(--text); }}
svg.chart .quiet {{ fill: var(--quiet); }}
svg.chart .grid {{ stroke: var(--grid); stroke-width: 1; }}
svg.chart .curve {{ fill: none; stroke-width: 2.5; stroke-linejoin: round; }}
svg.chart .span {{ stroke: var(--text); stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }}
svg.chart .span-end {{ fill: var(--text); }}
svg.chart .label {{ font-weight: 600; }}
svg.chart .span-text {{ font-size: .85em; }}
svg.chart .halo {{ paint-order: stroke; stroke: var(--card); stroke-width: 3px; }}
.pair svg.chart {{ font-size: 22px; }}
@media (max-width: 600px) {{ svg.chart {{ font-size: 22px; }} }}
""" + "\n".join(
    f"svg.chart .{role} {{ stroke: var(--{role}); }} "
    f"svg.chart .{role}-fill {{ fill: var(--{role}); }}"
    for role in COLOURS
)


def draw(chart: Chart) -> str:
    """The SVG element of a chart."""
    return "\n".join(_Drawing(chart).elements())


_GROUNDS = """
:root { --text: #1b1f24; --quiet: #5b6570; --grid: #d9dee4; --card: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ed; --quiet: #a3adb8; --grid: #3a424c; --card: #14181d; }
}
svg { font-family: system-ui, sans-serif; background: var(--card); }
"""


def draw_file(chart: Chart) -> str:
    """An SVG file of a chart."""
    opening, rest = draw(chart).split(">", 1)
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    return f"{opening} {namespace}>\n<style>{_GROUNDS}{STYLE}</style>{rest}\n"


class _Drawing:
    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.x_range, self.y_range = chart.x_range, chart.y_range

    def x(self, value: float) -> float:
        return round(LEFT + self.x_range.share(value) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - self.y_range.share(value) * (HEIGHT - TOP - BOTTOM), 1)

    def elements(self) -> Iterator[str]:
        chart = self.chart
        ids = f"{chart.name}-title {chart.name}-description"
        box = f"0 0 {WIDTH} {HEIGHT}"
        yield f'<svg class="chart" viewBox="{box}" role="img" aria-labelledby="{ids}">'
        yield f'<title id="{chart.name}-title">{escape(chart.title)}</title>'
        yield f'<desc id="{chart.name}-description">{escape(chart.description)}</desc>'
        yield from self._axes()
        yield (
            f'<clipPath id="{chart.name}-area"><rect x="0" y="{TOP - 6}" width="{WIDTH}" '
            f'height="{HEIGHT - BOTTOM - TOP + 6}"/></clipPath>'
        )
        yield f'<g clip-path="url(#{chart.name}-area)">'
        for line in chart.series:
            yield from self._line(line)
        yield "</g>"
        yield from self._labels()
        yield from self._span()
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
        for value, label in self.y_range.ticks:
            y = self.y(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{y}" y2="{y}"/>'
            yield _text(LEFT - 10, y, label, "end", "quiet", middle=True)
        for value, label in self.x_range.ticks:
            x = self.x(value)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 6}"/>'
            yield _text(x, floor + 28, label, "middle", "quiet")
        yield f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{floor}" y2="{floor}"/>'
        yield _text((LEFT + end) / 2, HEIGHT - 10, self.chart.x.label, "middle")
        centre = (TOP + floor) / 2
        yield (
            f'<text transform="translate(26 {centre}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.chart.y.label)}</text>"
        )

    def _line(self, line: Series) -> Iterator[str]:
        points = [(self.x(x), self.y(y)) for x, y in line.points]
        yield (
            f'<polyline class="curve {line.role}" '
            f'points="{" ".join(f"{x},{y}" for x, y in points)}"/>'
        )
        for x, y in points:  # the measurements themselves
            if line.square:
                place = f'x="{x - 3:g}" y="{y - 3:g}" width="6" height="6"'
                yield f'<rect class="{line.role}-fill" {place}/>'
            else:
                yield f'<circle class="{line.role}-fill" cx="{x}" cy="{y}" r="3.5"/>'

    def _labels(self) -> Iterator[str]:
        """Names at the ends of lines, pushed apart where they would overlap."""
        drawn = [line for line in self.chart.series if line.points]
        ends = [(self.y(line.points[-1][1]), line) for line in drawn]
        ends.sort(key=lambda end: end[0])
        free = float(TOP)
        for wanted, line in ends:
            y = max(wanted, free)
            free = y + LABEL_GAP
            x = self.x(line.points[-1][0]) + 10
            yield _text(x, y, line.label, "start", f"label {line.role}-fill", middle=True)

    def _span(self) -> Iterator[str]:
        span = self.chart.span
        if span is None:
            return
        left, right, y = self.x(span.left), self.x(span.right), self.y(span.y)
        yield f'<path class="span" d="M{right},{y} H{left} V{HEIGHT - BOTTOM}"/>'
        yield f'<circle class="span-end" cx="{left}" cy="{y}" r="5"/>'
        if span.text_left:
            yield _text(left - 12, y + 20, span.text, "end", "label span-text halo")
        else:
            yield _text(left + 12, y - 12, span.text, "start", "label span-text halo")


def _text(x: float, y: float, text: str, anchor: str, style: str = "", middle: bool = False) -> str:
    baseline = ' dominant-baseline="central"' if middle else ""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{baseline}{kind}>{escape(text)}</text>'
