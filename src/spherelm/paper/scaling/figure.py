"""The study's figures as SVG files: a line for every arm, its name at its end.

GPT's family is brown with squares, nGPT's blue with circles; within a family, lightness and dashes
tell arms apart, and so does the name beside the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from spherelm.paper.scaling.grid import ARMS
from spherelm.plots.charts import ticks

WIDTH, HEIGHT = 820, 460
LEFT, RIGHT, TOP, BOTTOM = 80, 250, 50, 70
"""Room around the plotted area, on the right for names."""
LABEL_GAP = 20
_BROWNS = ("#7c2d12", "#b45309", "#d97706", "#a16207", "#92400e")
_BLUES = ("#1e3a8a", "#1d4ed8", "#0284c7", "#6366f1", "#0891b2")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 5")


@dataclass(frozen=True)
class Line:
    """(million tokens, loss) of an arm."""

    arm: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Figure:
    """Losses of several arms over tokens."""

    name: str
    title: str
    lines: Sequence[Line]
    budgets: Sequence[float] = ()
    """Where given, x is logarithmic and these are its ticks."""

    def svg(self) -> str:
        return "\n".join(self._elements()) + "\n"

    def _elements(self) -> Iterator[str]:
        ends = "; ".join(f"{ARMS[li.arm].title} {li.points[-1][1]:.3f}" for li in self.lines)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            'font-family="system-ui, sans-serif" font-size="14">'
        )
        yield f"<title>{escape(self.title)}</title>"
        yield f"<desc>Validation loss at the ends: {escape(ends)}.</desc>"
        yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        yield _text(LEFT, 28, self.title, size=17)
        yield from self._axes()
        for line in self.lines:
            yield from self._line(line)
        yield from self._names()
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        low, high = self._y_range()
        floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
        for value, label in ticks(low, high):
            y = self._y(value)
            yield f'<line x1="{LEFT}" x2="{end}" y1="{y}" y2="{y}" stroke="#d9dee4"/>'
            yield _text(LEFT - 10, y + 5, label, anchor="end")
        marks = [(b, f"{b:.0f}") for b in self.budgets] or ticks(*self._x_range())
        for value, label in marks:
            x = self._x(value)
            yield f'<line x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 6}" stroke="#5b6570"/>'
            yield _text(x, floor + 24, label, anchor="middle")
        yield f'<line x1="{LEFT}" x2="{end}" y1="{floor}" y2="{floor}" stroke="#5b6570"/>'
        yield _text((LEFT + end) / 2, HEIGHT - 18, "million tokens", anchor="middle")
        yield (
            f'<text transform="translate(24 {(TOP + floor) / 2:g}) rotate(-90)" '
            'text-anchor="middle" fill="#1b1f24">validation loss</text>'
        )

    def _line(self, line: Line) -> Iterator[str]:
        colour, dash = _style(line.arm)
        points = [(self._x(x), self._y(y)) for x, y in line.points]
        path = " ".join(f"{x},{y}" for x, y in points)
        yield (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2"'
            f"{f' stroke-dasharray={dash!r}' if dash else ''}/>"
        )
        for x, y in points:
            if ARMS[line.arm].ngpt:
                yield f'<circle cx="{x}" cy="{y}" r="3.6" fill="{colour}"/>'
            else:
                box = f'x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4"'
                yield f'<rect {box} fill="{colour}"/>'

    def _names(self) -> Iterator[str]:
        """Names at the ends of lines, pushed apart where they would overlap."""
        free = float(TOP)
        for line in sorted(self.lines, key=lambda li: -li.points[-1][1]):
            (x, loss), colour = line.points[-1], _style(line.arm)[0]
            y = max(self._y(loss) + 5, free)
            free = y + LABEL_GAP
            text = f"{ARMS[line.arm].title} {loss:.3f}"
            yield _text(self._x(x) + 12, y, text, colour=colour)

    def _x_range(self) -> tuple[float, float]:
        xs = [x for line in self.lines for x, _ in line.points]
        return (min(xs) / 1.1, max(xs) * 1.02) if self.budgets else (0.0, max(xs))

    def _y_range(self) -> tuple[float, float]:
        ys = [y for line in self.lines for _, y in line.points]
        margin = 0.06 * (max(ys) - min(ys)) or 0.1
        return min(ys) - margin, max(ys) + margin

    def _x(self, value: float) -> float:
        left, right = self._x_range()
        if self.budgets:
            left, right, value = math.log(left), math.log(right), math.log(value)
        return round(LEFT + (value - left) / (right - left) * (WIDTH - LEFT - RIGHT), 1)

    def _y(self, value: float) -> float:
        low, high = self._y_range()
        return round(HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)


def _style(arm: str) -> tuple[str, str]:
    """Colour and dashes: the same for an arm in every figure."""
    family = [name for name in ARMS if ARMS[name].ngpt == ARMS[arm].ngpt]
    place = family.index(arm) % len(_DASHES)
    return (_BLUES if ARMS[arm].ngpt else _BROWNS)[place], _DASHES[place]


def _text(
    x: float, y: float, text: str, anchor: str = "start", colour: str = "#1b1f24", size: int = 14
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
