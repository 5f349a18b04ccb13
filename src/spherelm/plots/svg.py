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
svg.chart .dotted {{ stroke-dasharray: 2 6; stroke-linecap: round; }}
svg.chart .band {{ opacity: .16; }}
svg.chart .touch {{ fill: transparent; }}
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
            f'<text transform="translate(20 {centre}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.chart.y.label)}</text>"
        )

    def _line(self, line: Series) -> Iterator[str]:
        if line.band:
            high = [f"{self.x(x)},{self.y(top)}" for x, _, top in line.band]
            low = [f"{self.x(x)},{self.y(bottom)}" for x, bottom, _ in reversed(line.band)]
            yield f'<polygon class="band {line.role}-fill" points="{" ".join(high + low)}"/>'
        points = [(self.x(x), self.y(y)) for x, y in line.points]
        dotted = " dotted" if line.dotted else ""
        yield (
            f'<polyline class="curve {line.role}{dotted}" '
            f'points="{" ".join(f"{x},{y}" for x, y in points)}"/>'
        )
        for (x, y), values in zip(points, line.points, strict=True):  # the measurements themselves
            told = f"<title>{escape(self._tell(line, *values))}</title>"
            if not line.dots:
                yield f'<circle class="touch" cx="{x}" cy="{y}" r="6">{told}</circle>'
            elif line.square:
                place = f'x="{x - 3:g}" y="{y - 3:g}" width="6" height="6"'
                yield f'<rect class="{line.role}-fill" {place}>{told}</rect>'
            else:
                yield f'<circle class="{line.role}-fill" cx="{x}" cy="{y}" r="3.5">{told}</circle>'

    def _tell(self, line: Series, x: float, y: float) -> str:
        """What a point says when one points at it."""
        return f"{line.label}\n{self.chart.x.label}: {x:.4g}\n{self.chart.y.label}: {y:.4g}"

    def _labels(self) -> Iterator[str]:
        """Names at the ends of lines, pushed apart where they would overlap."""
        named = [(_named_point(line), line) for line in self.chart.series if line.points]
        named.sort(key=lambda end: self.y(end[0][1]))
        free, places = float(TOP), list[float]()
        for point, _ in named:
            places.append(max(self.y(point[1]), free))
            free = places[-1] + LABEL_GAP
        room = max(float(HEIGHT - BOTTOM), TOP + (len(named) - 1) * LABEL_GAP)
        for i in reversed(range(len(places))):  # none below the picture
            places[i] = min(places[i], room)
            room = places[i] - LABEL_GAP
        for (point, line), y in zip(named, places, strict=True):
            halo = " halo" if line.label_at_top else ""
            style = f"label {line.role}-fill{halo}"
            yield _text(self.x(point[0]) + 10, y, line.label, "start", style, middle=True)

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


def _named_point(line: Series) -> tuple[float, float]:
    """The point of a line that its label stands beside."""
    return max(line.points, key=lambda point: point[1]) if line.label_at_top else line.points[-1]


def _text(x: float, y: float, text: str, anchor: str, style: str = "", middle: bool = False) -> str:
    baseline = ' dominant-baseline="central"' if middle else ""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{baseline}{kind}>{escape(text)}</text>'
