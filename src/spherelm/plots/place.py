"""Where a text fits in a picture without covering a curve: plain geometry, in pixels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Point = tuple[float, float]
Line = Sequence[Point]
"""A curve as a polyline."""
Box = tuple[float, float, float, float]
"""Left, top, right, bottom; y points down."""

CLEAR = 6.0
"""Margin around a text, for the marks of points and the width of lines."""
STEP = 8.0
"""Distance between the positions tried."""

_NARROW, _WIDE = frozenset("iljtfrI.,:;'|!()[] "), frozenset("mwMW%@—…■□●○")


def text_width(text: str, size: float) -> float:
    """An upper bound on the width of a text in bold, in the fonts that browsers use for a page."""
    letters = (
        0.5 if c in _NARROW else 1.1 if c in _WIDE else 0.8 if c.isupper() else 0.72 for c in text
    )
    return size * sum(letters)


def crosses(box: Box, line: Line) -> bool:
    """Whether any part of a curve lies inside a box."""
    if len(line) == 1:
        return _inside(box, line[0])
    return any(_segment_crosses(box, *pair) for pair in itertools.pairwise(line))


def _inside(box: Box, point: Point) -> bool:
    return box[0] < point[0] < box[2] and box[1] < point[1] < box[3]


def _segment_crosses(box: Box, start: Point, end: Point) -> bool:
    """Whether a segment enters a box, that is, has a part inside all four edges."""
    first, last = 0.0, 1.0
    for axis in (0, 1):
        way = end[axis] - start[axis]
        low, high = box[axis] - start[axis], box[axis + 2] - start[axis]
        if way == 0:
            if not low < 0 < high:
                return False
            continue
        near, far = sorted((low / way, high / way))
        first, last = max(first, near), min(last, far)
    return first < last


def free_place(
    width: float, height: float, beside: Point, inside: Box, lines: Sequence[Line]
) -> Point | None:
    """The top left corner for a text of this size: as near to the point `beside` as possible,
    within the box `inside` and clear of all lines. None if there is no room."""

    def tried() -> list[Point]:
        columns = int((inside[2] - inside[0] - width) // STEP) + 1
        rows = int((inside[3] - inside[1] - height) // STEP) + 1
        return [
            (inside[0] + STEP * column, inside[1] + STEP * row)
            for column in range(columns)
            for row in range(rows)
        ]

    def distance(corner: Point) -> float:
        x = max(corner[0] - beside[0], 0.0, beside[0] - corner[0] - width)
        y = max(corner[1] - beside[1], 0.0, beside[1] - corner[1] - height)
        return x * x + y * y

    for x, y in sorted(tried(), key=distance):
        box = (x - CLEAR, y - CLEAR, x + width + CLEAR, y + height + CLEAR)
        if not any(crosses(box, line) for line in lines):
            return x, y
    return None
