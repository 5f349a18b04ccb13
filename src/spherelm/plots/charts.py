"""The pictures of a comparison, described once: `svg` and `figures` draw them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spherelm.compare.pair import Comparison, Side

Role = Literal["gpt", "ngpt", "other"]
"""Decides the colour: GPT and nGPT have the same one in every picture."""


@dataclass(frozen=True)
class Line:
    """One curve; its label stands at its end."""

    label: str
    role: Role
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Span:
    """A level from one x to another, such as the tokens that the model ahead did not need."""

    left: float
    right: float
    y: float
    text: str

    @property
    def text_left(self) -> bool:
        """Whether the text stands left of the span, below the curves, which fall towards it.

        Where the span begins early there is no room for that, but some above it.
        """
        return self.left > 0.4 * self.right


@dataclass(frozen=True)
class Chart:
    """Lines over one axis."""

    name: str
    title: str
    description: str
    """The picture in words, for those who cannot see it."""
    x_label: str
    y_label: str
    lines: Sequence[Line]
    span: Span | None = None
    whole_x: bool = False
    """Whether x counts things, so that ticks stand at whole numbers and x does not begin at 0."""
    y_from_zero: bool = False
    y_top: float | None = None
    """Where curves leave the picture; unset: it holds all of them."""


def charts_of(comparison: Comparison) -> list[Chart]:
    """All pictures of a comparison, the most important one first."""
    return [
        loss_over_tokens(comparison),
        loss_over_seconds(comparison),
        eigen_learning_rates(comparison.ngpt),
    ]


def loss_over_tokens(c: Comparison) -> Chart:
    """Validation loss over tokens, and where one model reaches the loss at which the other ends."""
    unit, name = token_unit(c.gpt.tokens)
    lines = [_loss_line(side, [(t / unit, loss) for t, loss in side.curve]) for side in c.sides]
    span, crossing = None, "They differ by no more than seeds do."
    if c.ahead is not None and c.tokens_needed is not None:
        first, second = c.ahead
        text = f"{c.speedup_tokens:.2f}\u00d7 fewer tokens"
        span = Span(c.tokens_needed / unit, second.tokens / unit, second.final_loss, text)
        needed = f"{c.tokens_needed / unit:.3g} {name}"
        crossing = f"{first.name} reaches {second.name}'s final loss after {needed}."
    return Chart(
        name="loss",
        title="Validation loss over tokens",
        description=f"{_ends(c)} {crossing}",
        x_label=f"{name} trained on",
        y_label="validation loss",
        lines=lines,
        span=span,
        y_top=_top(c),
    )


def loss_over_seconds(c: Comparison) -> Chart:
    """The same over time on this machine."""
    lines = [
        _loss_line(side, [(side.seconds_for(tokens), loss) for tokens, loss in side.curve])
        for side in c.sides
    ]
    span = None
    if c.ahead is not None and c.tokens_needed is not None and (c.speedup_seconds or 0) > 1:
        first, second = c.ahead
        ends = first.seconds_for(c.tokens_needed), second.seconds_for(second.tokens)
        text = f"{c.speedup_seconds:.2f}\u00d7 less time"
        span = Span(*ends, second.final_loss, text)
    return Chart(
        name="loss-seconds",
        title="Validation loss over training time",
        description=f"{_ends(c)} A step takes GPT {c.gpt.seconds_per_step:.3g} seconds and nGPT "
        f"{c.ngpt.seconds_per_step:.3g}.",
        x_label="seconds of training steps",
        y_label="validation loss",
        lines=lines,
        span=span,
        y_top=_top(c),
    )


def eigen_learning_rates(ngpt: Side) -> Chart:
    """Mean of each layer's eigen learning rates at the end, as in the paper's figure."""
    start = ngpt.config.model.resolve_scale("alpha_attn").init
    blocks: list[tuple[str, str, Role]] = [
        ("attention", "alpha_attn", "ngpt"),
        ("MLP", "alpha_mlp", "other"),
    ]
    lines = [
        Line(label, role, [(layer, value) for layer, value in enumerate(ngpt.alpha[name], start=1)])
        for label, name, role in blocks
    ]
    means = "; ".join(
        f"{line.label}: {', '.join(f'{value:.3f}' for _, value in line.points)}" for line in lines
    )
    return Chart(
        name="alpha",
        title="Eigen learning rates of nGPT by layer",
        description=f"Means at the end of training, where all began at {start:g}. {means}.",
        x_label="layer",
        y_label="mean of \u03b1",
        lines=lines,
        whole_x=True,
        y_from_zero=True,
    )


def token_unit(tokens: float) -> tuple[float, str]:
    """The unit in which a number of tokens is easy to read."""
    for unit, name in ((1e9, "billion tokens"), (1e6, "million tokens"), (1e3, "thousand tokens")):
        if tokens >= 2 * unit:
            return unit, name
    return 1.0, "tokens"


def ticks(low: float, high: float, whole: bool = False) -> list[tuple[float, str]]:
    """About five round numbers from `low` to `high`, and how they are written."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - rough))
    if whole:
        step = max(1.0, round(step))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (step == 2.5 * power)
    first = math.ceil(low / step - 1e-9)
    values = [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(value, f"{value:.{decimals}f}") for value in values]


def limits(chart: Chart) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the area that a chart shows."""
    xs = [x for line in chart.lines for x, _ in line.points]
    ys = [y for line in chart.lines for _, y in line.points]
    left = min(xs) if chart.whole_x else 0.0
    right = max(xs) if max(xs) > left else left + 1
    low = 0.0 if chart.y_from_zero else min(ys)
    high = max(ys) if chart.y_top is None else chart.y_top
    margin = 0.06 * (high - low) or 0.05 * abs(low) or 1.0
    return left, right, low if chart.y_from_zero else low - margin, high + margin


def _loss_line(side: Side, points: Sequence[tuple[float, float]]) -> Line:
    return Line(f"{side.name} {side.final_loss:.3f}", side.arch, points)


def _top(c: Comparison) -> float:
    """The highest loss after a fifth of the run: what comes before would press the rest flat."""
    late = (loss for side in c.sides for t, loss in side.curve if t >= 0.2 * side.tokens)
    return max(late)


def _ends(c: Comparison) -> str:
    return f"GPT ends at {c.gpt.final_loss:.3f}, nGPT at {c.ngpt.final_loss:.3f}."
