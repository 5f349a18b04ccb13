"""The models whose insides the paper shows, measured and drawn by `inspect`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from spherelm.model.config import ARCH_NAMES, ARCHS
from spherelm.paper.points import Point
from spherelm.paper.size import Size
from spherelm.paper.workbench import Workbench
from spherelm.plots.chart import Picture, slug

if TYPE_CHECKING:
    from spherelm.inspect.insides import Insides
    from spherelm.inspect.picture import Chapter, Several

NOTES = (
    "The paper does not say at which context the models whose insides it shows were trained; "
    "these are at 4k, like those of Figure 1.",
    "The paper's curves are not printed as numbers.",
)
P = TypeVar("P")


def points(size: Size) -> Sequence[Point]:
    """GPT and nGPT of each model; at nano and small the pair of Figure 1 among them."""
    return [
        Point(arch, model, "4k", size.insides_budget)
        for model in size.grid_models
        for arch in ARCHS
    ]


def label_of(size: Size, point: Point) -> str:
    """A model's name in pictures and tables."""
    return f"{ARCH_NAMES[point.arch]} {size.short_name(point.model)}"


def look(
    bench: Workbench, chosen: Sequence[Point], layer: int | None = None
) -> list[tuple[Point, Insides]]:
    """The insides of the points' models."""
    return [
        (point, bench.insides(point, label_of(bench.size, point), layer))
        for point in bench.each(chosen, "models looked into")
    ]


def by_part(
    models: Sequence[tuple[Point, Insides]], parts: Callable[[Insides], Sequence[P]]
) -> Iterator[tuple[Point, Insides, P]]:
    """The parts of all models, such as their matrices, grouped so that the same part of each model
    comes together."""
    for place in range(max(len(parts(model)) for _, model in models)):
        for point, model in models:
            for part in parts(model)[place : place + 1]:  # empty if this model has fewer
                yield point, model, part


def figures_by_model(
    size: Size,
    models: Sequence[tuple[Point, Insides]],
    chapter: Callable[[Several], Chapter],
    suffix: str = "",
) -> list[Picture]:
    """The pictures of a chapter, one set per model size with GPT beside nGPT, as in the paper."""
    found = []
    for model in size.grid_models:
        here = [
            (point, dataclasses.replace(each, label=ARCH_NAMES[point.arch]))
            for point, each in models
            if point.model == model
        ]
        for chart, caption in chapter(several(here)).pictures:
            named = dataclasses.replace(
                chart,
                name=slug(chart.name, model) + suffix,
                title=f"{chart.title}: {size.short_name(model)}",
            )
            found.append(Picture(named, caption))
    return found


def several(models: Sequence[tuple[Point, Insides]]) -> Several:
    """The models with their colours."""
    from spherelm.inspect.picture import coloured

    return coloured([model for _, model in models])
