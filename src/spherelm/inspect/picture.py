"""Chapters of the page, and helpers for the curves in their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spherelm.inspect.distribution import Distribution
from spherelm.inspect.insides import Insides
from spherelm.model.config import ARCH_NAMES, Arch
from spherelm.plots.chart import Axis, Chart, Picture, Role, Series, described, roles_for

LAYERS = Axis("layer", whole=True)
DEPTHS = Axis("layer (0 is the embedding)", whole=True)
LONGEST_LABEL = 12
POINTS = 100
"""Most points of a curve over singular values."""
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
    """Pictures of one subject, and what the paper says about it."""

    name: str
    title: str
    paper: str
    pictures: Sequence[Picture]


Several = Sequence[tuple[Insides, Role]]


def chart_of(name: str, title: str, x: Axis, y: Axis, lines: Sequence[Series]) -> Chart:
    """A chart whose description says where its curves begin and end."""
    return described(name, title, x, y, lines, digits=3)


def distributions(
    name: str, title: str, unit: str, shown: Sequence[tuple[str, Role, Distribution]]
) -> Chart:
    """Histograms as curves, each scaled to its fullest bin because their widths differ a lot."""
    lines = [_outline(label, role, each) for label, role, each in shown]
    told = "; ".join(f"{label}: mean {d.mean:.3g}, spread {d.std:.3g}" for label, _, d in shown)
    y = Axis("share of the fullest bin", from_zero=True)
    told = f"Distribution of {unit}: {told}."
    return Chart(name, title, told, Axis(unit), y, lines, named_at_ends=False)


def _outline(label: str, role: Role, each: Distribution) -> Series:
    """A histogram as a curve over the range of its values."""
    top = max(each.counts)
    width = (each.high - each.low) / len(each.counts)
    filled = [i for i, count in enumerate(each.counts) if count]
    first, last = filled[0], filled[-1]
    inner = [(each.centres[i], each.counts[i] / top) for i in range(first, last + 1)]
    left, right = each.centres[first] - width, each.centres[last] + width
    return Series(label, role, [(left, 0.0), *inner, (right, 0.0)], dots=False)


def ranked(model: Insides, role: Role, values: Sequence[float]) -> Series:
    """Values by rank, thinned to at most `POINTS`."""
    last = len(values) - 1
    ranks = sorted({round(i * last / (POINTS - 1)) for i in range(POINTS)}) if last else [0]
    return Series(model.label, role, [(i + 1, values[i]) for i in ranks], dots=False)


def by_layer(
    model: Insides,
    role: Role,
    values: Iterable[float],
    spread: Iterable[tuple[float, float]] = (),
) -> Series:
    """One number per layer; `spread` gives the low and high ends of a band around it."""
    points = list(enumerate(values, start=1))
    band = [(layer, *ends) for layer, ends in enumerate(spread, start=1)]
    return Series(model.label, role, points, square=model.arch == "gpt", band=band)


def by_depth(model: Insides, role: Role, values: Iterable[float | None]) -> Series:
    """One number for the embedding and then each half-block; None leaves a gap."""
    points = [(i / 2, value) for i, value in enumerate(values) if value is not None]
    return Series(model.label, role, points, square=model.arch == "gpt")


def dotted(label: str, role: Role, values: Iterable[float]) -> Series:
    """One number per layer, as a dotted line to compare with another curve."""
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


def short_labels(archs: Sequence[Arch], runs: Sequence[str]) -> list[str]:
    """GPT and nGPT or, if there are several of one kind, the names of their folders."""
    labels = []
    for arch, run in zip(archs, runs, strict=True):
        name = Path(run).name or run
        if name.startswith("step_"):  # a checkpoint: its run is two folders up
            name = Path(run).absolute().parents[1].name
        shown = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
        labels.append(ARCH_NAMES[arch] if archs.count(arch) == 1 else shown)
    return [
        label if labels.count(label) == 1 else f"{label[: LONGEST_LABEL - 3]} {i}"
        for i, label in enumerate(labels, start=1)
    ]
