"""Chapters of the page, and the curves that their pictures are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spherelm.inspect.distribution import Distribution
from spherelm.inspect.insides import Insides
from spherelm.plots.chart import Axis, Chart, Picture, Role, Series, described, roles_for

LAYERS = Axis("layer", whole=True)
DEPTHS = Axis("layer (0 is the embedding)", whole=True)
POINTS = 100
"""Of a curve that has a point for each singular value."""
SYMBOLS = {
    "alpha_attn": "α_A",
    "alpha_mlp": "α_M",
    "s_u": "s_u",
    "s_nu": "s_ν",
    "s_qk": "s_qk",
    "s_z": "s_z",
    "W_nu": "W_ν",
    "W_o_mlp": "W_oMLP",
}


@dataclass(frozen=True)
class Chapter:
    """Pictures of one subject, and what the paper says of it."""

    name: str
    title: str
    paper: str
    pictures: Sequence[Picture]


Several = Sequence[tuple[Insides, Role]]


def chart_of(name: str, title: str, x: Axis, y: Axis, lines: Sequence[Series]) -> Chart:
    """A chart that tells in words where its curves begin and end."""
    return described(name, title, x, y, lines, digits=3)


def distributions(
    name: str, title: str, unit: str, shown: Sequence[tuple[str, Role, Distribution]]
) -> Chart:
    """Histograms by label as curves, each as high as its fullest bin: their widths differ much."""
    lines = [_outline(label, role, each) for label, role, each in shown]
    told = "; ".join(f"{label}: mean {d.mean:.3g}, spread {d.std:.3g}" for label, _, d in shown)
    y = Axis("share of the fullest bin", from_zero=True)
    told = f"Distribution of {unit}: {told}."
    return Chart(name, title, told, Axis(unit), y, lines, named_at_ends=False)


def _outline(label: str, role: Role, each: Distribution) -> Series:
    """A histogram as a curve, which begins and ends where the values do."""
    top = max(each.counts)
    width = (each.high - each.low) / len(each.counts)
    filled = [i for i, count in enumerate(each.counts) if count]
    first, last = filled[0], filled[-1]
    inner = [(each.centres[i], each.counts[i] / top) for i in range(first, last + 1)]
    left, right = each.centres[first] - width, each.centres[last] + width
    return Series(label, role, [(left, 0.0), *inner, (right, 0.0)], dots=False)


def ranked(model: Insides, role: Role, values: Sequence[float]) -> Series:
    """Values by rank, as many as a picture can show."""
    last = len(values) - 1
    ranks = sorted({round(i * last / (POINTS - 1)) for i in range(POINTS)}) if last else [0]
    return Series(model.label, role, [(i + 1, values[i]) for i in ranks], dots=False)


def by_layer(
    model: Insides,
    role: Role,
    values: Iterable[float],
    spread: Iterable[tuple[float, float]] = (),
) -> Series:
    """A number a layer; `spread` is the low and the high end of a band around it."""
    points = list(enumerate(values, start=1))
    band = [(layer, *ends) for layer, ends in enumerate(spread, start=1)]
    return Series(model.label, role, points, square=model.arch == "gpt", band=band)


def by_depth(model: Insides, role: Role, values: Iterable[float | None]) -> Series:
    """A number for the embedding and then each half-block; None: there is none."""
    points = [(i / 2, value) for i, value in enumerate(values) if value is not None]
    return Series(model.label, role, points, square=model.arch == "gpt")


def dotted(label: str, role: Role, values: Iterable[float]) -> Series:
    """A number a layer, to be seen beside another curve."""
    return Series(label, role, list(enumerate(values, start=1)), dots=False, dotted=True)


def level(label: str, role: Role, value: float, layers: int) -> Series:
    """The same number for all layers, as a dotted line."""
    ends = [(layer, value) for layer in (1, layers)]
    return Series(label, role, ends, dots=False, dotted=True)


def mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def symbol_of(name: str) -> str:
    return SYMBOLS.get(name, name)


def coloured(models: Sequence[Insides]) -> Several:
    """Each model with its colour."""
    return list(zip(models, roles_for([model.arch for model in models]), strict=True))
