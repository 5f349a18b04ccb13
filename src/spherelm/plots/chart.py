"""A chart as data: what it shows, independent of how. `svg` and `png` draw it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Role = Literal["gpt", "ngpt", "third", "fourth", "fifth", "sixth"]
"""Sets the colour of a curve: GPT and nGPT look the same in every picture."""
COLOURS: dict[Role, tuple[str, str]] = {
    "gpt": ("#b45309", "#f5a342"),
    "ngpt": ("#1d4ed8", "#7fb0ff"),
    "third": ("#7c3aed", "#c4a1ff"),
    "fourth": ("#047857", "#4ade9f"),
    "fifth": ("#be185d", "#f78fbf"),
    "sixth": ("#0e7490", "#67d4e8"),
}
"""On a light and on a dark background."""

LONGEST_LABEL, MOST_LABELS = 13, 8
"""Most letters per label and most labels that fit beside a picture."""

Tick = tuple[float, str]
"""Its position on the axis, and its label."""
MOST_TICKS = 8
TICKS_OF_A_DECADE = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)
"""Round numbers about evenly spaced on a logarithmic axis, the finest set first."""
TOKEN_UNITS = ((1e9, "billion tokens"), (1e6, "million tokens"), (1e3, "thousand tokens"))


@dataclass(frozen=True)
class Series:
    """One curve through its points."""

    label: str
    role: Role
    points: Sequence[tuple[float, float]]
    square: bool = False
    """Whether points are squares instead of circles, so that colour alone need not identify GPT."""
    dots: bool = True
    """Whether each point is marked; off where there are many, as in a distribution."""
    dotted: bool = False
    """Whether the line is dotted and its marks are hollow (a single point has no line): another
    view of what a curve of the same colour shows, or a variant of its model."""
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high): the spread around the curve at x."""


@dataclass(frozen=True)
class Range:
    """The part of an axis that is shown."""

    low: float
    high: float
    ticks: Sequence[Tick]
    log: bool

    def share(self, value: float) -> float:
        """Position of a value on the axis: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and how far it reaches."""

    label: str
    log: bool = False
    whole: bool = False
    """Whether it counts things, so that ticks are at whole numbers."""
    from_zero: bool = False
    top: float | None = None
    """Cut curves off above this value; unset: show all of them."""
    ticks: Sequence[Tick] = ()
    """Unset: round numbers."""

    def over(self, values: Sequence[float], margin: float) -> Range:
        """The range that shows `values`, with `margin`, a share of it, left free at each end."""
        low, high = min(values, default=1.0), max(values, default=2.0)
        low = 0.0 if self.from_zero else low
        high = high if self.top is None else self.top
        if self.whole and low < high:  # so that even a range under 1 has ticks at both ends
            low, high = math.floor(low), math.ceil(high)
        if self.log:
            space = (high / low) ** margin if high > low else 2.0
            low, high = low / space, high * space
            return Range(low, high, self.ticks or log_ticks(low, high), log=True)
        space = margin * (high - low) if high > low else 0.05 * abs(low) or 1.0
        low, high = low if self.from_zero else low - space, high + space
        return Range(low, high, self.ticks or ticks(low, high, self.whole), log=False)


@dataclass(frozen=True)
class Span:
    """A horizontal line from one x to another, such as the tokens the better model saved."""

    left: float
    right: float
    y: float
    text: str
    """One line or several."""


@dataclass(frozen=True)
class Chart:
    """Curves over a shared x axis."""

    name: str
    title: str
    description: str
    """The picture in words, for those who cannot see it."""
    x: Axis
    y: Axis
    series: Sequence[Series]
    span: Span | None = None
    legend: str | None = None
    """A title for the legend, saying what the curves' labels are."""
    named_at_ends: bool = True
    """Whether labels may stand at the ends of curves: not for distributions."""

    @property
    def labels_at_ends(self) -> bool:
        """Whether labels stand at the ends of curves, beside the picture, or in a legend above it.

        They do only if all curves end at the right edge and all labels fit there: a label inside
        the picture could cover another curve.
        """
        if not self.named_at_ends or len(self.series) > MOST_LABELS:
            return False
        ends = [line.points[-1][0] for line in self.series if line.points]
        x = self.x_range
        short = all(len(line.label) <= LONGEST_LABEL for line in self.series)
        return short and all(x.share(end) >= x.share(max(ends)) - 0.01 for end in ends)

    @property
    def x_range(self) -> Range:
        return self.x.over([x for line in self.series for x, _ in line.points], margin=0.02)

    @property
    def y_range(self) -> Range:
        ys = [y for line in self.series for _, y in line.points]
        ends = [y for line in self.series for _, *pair in line.band for y in pair]
        return self.y.over(ys + ends, margin=0.06)

    @property
    def cut(self) -> str:
        """A remark for the caption if the beginning of a curve is above the picture."""
        high = self.y_range.high
        if all(y <= high for line in self.series for _, y in line.points):
            return ""
        return " Higher values at the beginning are cut off."


def described(
    name: str,
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Series],
    span: Span | None = None,
    digits: int = 4,
) -> Chart:
    """A chart whose description says where its curves begin and end."""
    told = "; ".join(
        f"{line.label} from {line.points[0][1]:.{digits}g} to {line.points[-1][1]:.{digits}g}"
        for line in lines
        if line.points
    )
    return Chart(name, title, f"{y.label} over {x.label}: {told}.", x, y, lines, span)


def slug(*words: str) -> str:
    """A name for a chart, which is also its picture's file name."""
    return "-".join(words).lower().replace(".", "").replace("_", "-")


def roles_for(archs: Sequence[Literal["gpt", "ngpt"]]) -> list[Role]:
    """A role, and so a colour, for each model: the first GPT and the first nGPT get their own, the
    others share the rest, starting over when those are used up."""
    free = [role for role in COLOURS if role not in ("gpt", "ngpt")] * len(archs)
    roles: list[Role] = []
    for arch in archs:
        roles.append(arch if arch not in roles else free.pop(0))
    return roles


class Picture(NamedTuple):
    """A chart and what to look for in it."""

    chart: Chart
    caption: str


def token_unit(most: float) -> tuple[float, str]:
    """The size and name of the unit for an axis of up to `most` tokens: the largest that fits at
    least twice, so that most ticks are at whole numbers."""
    return next((unit for unit in TOKEN_UNITS if most >= 2 * unit[0]), (1.0, "tokens"))


def ticks(low: float, high: float, whole: bool = False) -> list[Tick]:
    """About five ticks at round numbers from `low` to `high`."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - rough))
    if whole:
        step = max(1.0, round(step))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (step == 2.5 * power < 10)
    first = math.ceil(low / step - 1e-9)
    values = [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(value, f"{value:.{decimals}f}") for value in values]


def log_ticks(low: float, high: float) -> list[Tick]:
    """Ticks of a logarithmic axis at round numbers from `low` to `high`, as many as fit."""
    if high < 2 * low:  # nearly linear over so short a range
        return ticks(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in TICKS_OF_A_DECADE:
        found = [float(f"{digit}e{k}") for k in decades for digit in digits]
        found = [value for value in found if low <= value <= high]
        if len(found) <= MOST_TICKS:
            break
    few = found[:: -(-len(found) // MOST_TICKS) or 1]
    return [(value, f"{value:,.10g}") for value in few]
