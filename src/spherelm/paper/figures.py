"""Charts that several items draw: losses of GPT and nGPT over something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spherelm.model.config import ARCH_NAMES, Arch
from spherelm.plots.chart import Axis, Chart, Series, Span, Tick, described

Points = Sequence[tuple[float, float]]


def pair(
    name: str,
    title: str,
    x: Axis,
    y: Axis,
    curves: Mapping[Arch, Points],
    span: Span | None = None,
) -> Chart:
    """GPT beside nGPT, in the colours of all our pictures."""
    lines = [
        Series(ARCH_NAMES[arch], arch, points, square=arch == "gpt", dots=len(points) <= 40)
        for arch, points in curves.items()
    ]
    return described(name, title, x, y, lines, span)


def ticks_at(values: Sequence[float]) -> list[Tick]:
    """A tick at each value, for an axis of few of them."""
    return [(value, f"{value:,.4g}") for value in sorted(set(values))]
