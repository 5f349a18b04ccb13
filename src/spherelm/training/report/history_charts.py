"""The curves of runs as charts, which `plots.svg` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from spherelm.plots.chart import Axis, Chart, Role, Series, token_unit
from spherelm.training.report.history import History, Points

ROLES: tuple[Role, ...] = get_args(Role)
MOST_RUNS = 2 * len(ROLES)
"""The most runs on a page: as many as colours and dotted lines can tell apart."""
LONGEST_LABEL = 24
"""How many letters of a run's name fit above a picture."""
TIMES = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))

FACTORS = {
    "alpha_attn": "α of attention",
    "alpha_mlp": "α of the MLP",
    "s_qk": "s_qk",
    "s_u": "s_u",
    "s_nu": "s_ν",
    "s_z": "s_z",
}
"""Fields of the metrics with means of factors, by layer or of all."""


@dataclass(frozen=True)
class Shown:
    """A run as it appears in every picture."""

    run: History
    label: str
    role: Role
    dotted: bool


def appearances(runs: Sequence[History]) -> list[Shown]:
    """A label, colour and line style for each run. The first GPT and the first nGPT have the
    colours of their architectures."""
    archs = [run.config.model.arch for run in runs]
    first = {archs.index(arch): arch for arch in dict.fromkeys(archs)}
    others = [role for role in ROLES if role not in ("gpt", "ngpt")]
    free = [*others, *(role for role in ROLES if role not in (*others, *archs))]
    ways: list[tuple[Role, bool]] = [(role, False) for role in free]
    ways += [(role, True) for role in ROLES]
    rest = iter(ways)
    look = [(first[i], False) if i in first else next(rest) for i in range(len(runs))]
    names = [_name(run.folder) for run in runs]
    if len(set(names)) < len(names) or max(map(len, names)) > LONGEST_LABEL:
        names = [f"run {number}" for number in range(1, len(runs) + 1)]
    return [Shown(r, n, *way) for r, n, way in zip(runs, names, look, strict=True)]


def _name(folder: str) -> str:
    return folder.rstrip("/").rpartition("/")[2]


def loss_charts(shown: Sequence[Shown]) -> list[Chart]:
    """Validation and training loss, over tokens and over time, as far as they were recorded."""
    found = []
    timed = [each for each in shown if each.run.clock]
    for name, what in (("val_loss", "Validation loss"), ("loss", "Training loss")):
        for which, way in ((shown, _over_tokens), (timed, _over_time)):
            over, axis, x = way(which)
            lines = _lines(which, name, x, dots=name == "val_loss")
            late = [y for line in lines for y in _late(line.points)]
            if late:
                y_axis = Axis(what.lower(), top=max(late))
                found.append(_chart(f"{name}-{over}", f"{what} over {over}", axis, y_axis, lines))
    return found


def optimizer_charts(shown: Sequence[Shown]) -> list[Chart]:
    """The learning rate and the norm of the gradient."""
    over, axis, x = _over_tokens(shown)
    rate, norm = (_lines(shown, name, x, dots=False) for name in ("lr", "grad_norm"))
    charts = [_chart("lr", f"Learning rate over {over}", axis, Axis("", from_zero=True), rate)]
    above = [y for line in norm for _, y in line.points if y > 0]
    if above and all(y > 0 for line in norm for _, y in line.points):
        title = f"Norm of the gradient over {over}"
        charts.append(_chart("grad-norm", title, axis, Axis("before clipping", log=True), norm))
    return charts


def factor_charts(shown: Sequence[Shown]) -> list[Chart]:
    """The learned factors of the nGPTs over training."""
    over, axis, x = _over_tokens(shown)
    charts = []
    for name, what in FACTORS.items():
        lines = _lines(shown, name, x, dots=True, spread=True)
        if lines:
            charts.append(_chart(name, f"{what} over {over}", axis, Axis(""), lines))
    return charts


X = Callable[[History], Callable[[dict[str, Any]], float]]


def _over_tokens(shown: Sequence[Shown]) -> tuple[str, Axis, X]:
    unit, name = token_unit(max(each.run.tokens for each in shown))
    return "tokens", Axis(name, from_zero=True), lambda run: lambda line: line["tokens"] / unit


def _over_time(shown: Sequence[Shown]) -> tuple[str, Axis, X]:
    longest = max((max(each.run.clock.values()) for each in shown), default=0.0)
    unit, name = next((t for t in TIMES if longest >= 2 * t[0]), TIMES[-1])
    axis = Axis(f"{name} of training steps", from_zero=True)
    return "time", axis, lambda run: lambda line: run.clock[line["step"]] / unit


def _lines(
    shown: Sequence[Shown], name: str, x: X, dots: bool, spread: bool = False
) -> list[Series]:
    curves = [(each, each.run.curve(name, x(each.run))) for each in shown]
    return [
        Series(
            each.label,
            each.role,
            points,
            square=each.run.config.model.arch == "gpt",
            dots=(dots and len(points) <= 60) or len(points) == 1,  # one point makes no line
            dotted=each.dotted,
            band=each.run.spread(name, x(each.run)) if spread else (),
        )
        for each, points in curves
        if points
    ]


def _late(points: Points | Sequence[tuple[float, float]]) -> list[float]:
    """Values after the first fifth of a run, whose high losses would flatten the rest."""
    return [y for x, y in points if x >= 0.2 * points[-1][0]]


def _chart(name: str, title: str, x: Axis, y: Axis, lines: Sequence[Series]) -> Chart:
    ends = "; ".join(f"{line.label} is at {line.points[-1][1]:.4g}" for line in lines)
    return Chart(name, title, f"{ends}.", x, y, lines)
