"""A chart described once: what it shows, not how. `svg` and `png` draw it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Role = Literal["gpt", "ngpt", "third", "fourth", "fifth", "sixth"]
"""Decides the colour: GPT and nGPT have the same one in every picture."""
COLOURS: dict[Role, tuple[str, str]] = {
    "gpt": ("#b45309", "#f5a342"),
    "ngpt": ("#1d4ed8", "#7fb0ff"),
    "third": ("#7c3aed", "#c4a1ff"),
    "fourth": ("#047857", "#4ade9f"),
    "fifth": ("#be185d", "#f78fbf"),
    "sixth": ("#0e7490", "#67d4e8"),
}
"""On a light and on a dark ground."""

LONGEST_LABEL, MOST_LABELS = 13, 8
"""Letters and labels that have room beside a picture."""

Tick = tuple[float, str]
"""Where it stands, and what is written there."""
MOST_TICKS = 8
TICKS_OF_A_DECADE = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)
"""Round numbers at distances that look alike on a logarithmic axis, the finest first."""
TOKEN_UNITS = ((1e9, "billion tokens"), (1e6, "million tokens"), (1e3, "thousand tokens"))


@dataclass(frozen=True)
class Series:
    """One curve through its points."""

    label: str
    role: Role
    points: Sequence[tuple[float, float]]
    square: bool = False
    """Whether points are squares, not circles: so that GPT is not told by its colour alone."""
    dots: bool = True
    """Whether each point is marked; not where they are many, as in a distribution."""
    dotted: bool = False
    """Whether the line is dotted and its marks are hollow (one mark alone shows no dots): a second
    look at what another curve of that colour shows, or a variant of its model."""
    band: Sequence[tuple[float, float, float]] = ()
    """x, and the low and the high end of a spread around the curve there."""


@dataclass(frozen=True)
class Range:
    """The part of an axis that is shown."""

    low: float
    high: float
    ticks: Sequence[Tick]
    log: bool

    def share(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and how far it reaches."""

    label: str
    log: bool = False
    whole: bool = False
    """Whether it counts things, so that ticks stand at whole numbers."""
    from_zero: bool = False
    top: float | None = None
    """Where curves leave the picture; unset: it holds all of them."""
    ticks: Sequence[Tick] = ()
    """Unset: round numbers."""

    def over(self, values: Sequence[float], margin: float) -> Range:
        """The range that shows `values`, with a share of it left free at its ends."""
        low, high = min(values, default=1.0), max(values, default=2.0)
        low = 0.0 if self.from_zero else low
        high = high if self.top is None else self.top
        if self.whole and low < high:  # less than a whole has a tick at both ends, too
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
    """A level from one x to another, such as the tokens that the model ahead did not need."""

    left: float
    right: float
    y: float
    text: str
    """One line or several."""


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    name: str
    title: str
    description: str
    """The picture in words, for those who cannot see it."""
    x: Axis
    y: Axis
    series: Sequence[Series]
    span: Span | None = None
    legend: str | None = None
    """What the labels of the curves are."""
    named_at_ends: bool = True
    """Whether a curve may have its label where it ends: not for distributions."""

    @property
    def labels_at_ends(self) -> bool:
        """Whether labels stand at the ends of curves, beside the picture; else in a legend above.

        Only where all curves end at its right edge and all labels find room: a label inside the
        picture could cover another curve.
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
        """What to say under it where the beginning of a curve is above the picture."""
        high = self.y_range.high
        if all(y <= high for line in self.series for _, y in line.points):
            return ""
        return " What is higher, at the beginning, is cut off."


def described(
    name: str,
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Series],
    span: Span | None = None,
    digits: int = 4,
) -> Chart:
    """A chart that says in words where its curves begin and end."""
    told = "; ".join(
        f"{line.label} from {line.points[0][1]:.{digits}g} to {line.points[-1][1]:.{digits}g}"
        for line in lines
        if line.points
    )
    return Chart(name, title, f"{y.label} over {x.label}: {told}.", x, y, lines, span)


def slug(*words: str) -> str:
    """A name for a chart, and so for the file of its picture."""
    return "-".join(words).lower().replace(".", "").replace("_", "-")


def roles_for(archs: Sequence[Literal["gpt", "ngpt"]]) -> list[Role]:
    """A colour for each model: the first GPT and the first nGPT have those of all our pictures, the
    others the free ones, which begin anew when all are taken."""
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
    """What tokens are counted in on an axis up to `most` of them, and what it is called: the
    largest unit of which there are two, so that most ticks stand at whole numbers."""
    return next((unit for unit in TOKEN_UNITS if most >= 2 * unit[0]), (1.0, "tokens"))


def ticks(low: float, high: float, whole: bool = False) -> list[Tick]:
    """About five round numbers from `low` to `high`, and how they are written."""
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
    """Round numbers of a logarithmic axis from `low` to `high`: as many as do not crowd it."""
    if high < 2 * low:  # hardly a curve: evenly, as on a ruler
        return ticks(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in TICKS_OF_A_DECADE:
        found = [float(f"{digit}e{k}") for k in decades for digit in digits]
        found = [value for value in found if low <= value <= high]
        if len(found) <= MOST_TICKS:
            break
    few = found[:: -(-len(found) // MOST_TICKS) or 1]
    return [(value, f"{value:,.10g}") for value in few]
