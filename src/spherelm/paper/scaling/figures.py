"""Pictures of the study: losses at the ends of runs, and the curves of the longest ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from spherelm.paper.scaling.arms import ARMS, MAIN
from spherelm.paper.scaling.best import places
from spherelm.paper.scaling.identity import Place, first
from spherelm.paper.scaling.needed import Answer, Ends, answer
from spherelm.paper.scaling.point import SMALL
from spherelm.paper.scaling.words import millions
from spherelm.paper.store import Record
from spherelm.plots.chart import Axis, Chart, Role, Series, Span

Points = Sequence[tuple[float, float]]

_ROLES: tuple[Role, ...] = ("gpt", "third", "fifth", "sixth", "ngpt", "fourth")
"""Colours of the arms of `MAIN`; a recipe has the colour of the arm it changes, and is dotted."""


def figures(records: Sequence[Record]) -> list[Chart]:
    """For each model and context: every arm's final loss over tokens, if there are several budgets,
    with the tokens that nGPT saves; and the training curves of the largest budget."""
    ends = Ends.of(records)
    found = []
    for place in places(ends.bests):
        here = ends.at(place)
        what, name = named(place)
        last = {b.arm: [(e.tokens / 1e6, e.loss) for e in here if e.arm == b.arm] for b in here}
        title = f"Loss at the end of finished runs, {what}"
        if len({b.tokens for b in here}) > 1:
            axis = budgets_axis(b.tokens for b in here)
            chart = _losses(f"scaling-{name}", title, axis, last)
            found.append(_with_span(chart, answer(ends, place)))
        longest = max(b.tokens for b in here)
        curves = {b.arm: _late(first(b.runs)) for b in here if b.tokens == longest}
        title = f"The runs of {millions(longest)} tokens, {what}"
        axis = Axis("million tokens", from_zero=True)
        found.append(_losses(f"curves-{name}", title, axis, curves))
    return found


def budgets_axis(budgets: Iterable[int]) -> Axis:
    """Tokens, with a tick at each budget."""
    ticks = [(tokens / 1e6, f"{tokens / 1e6:.0f}") for tokens in sorted(set(budgets))]
    return Axis("million tokens", log=True, ticks=ticks)


def named(place: Place) -> tuple[str, str]:
    """The title and the file name's end for a picture of a model and context."""
    size, context = place.cells
    if size == SMALL:
        return f"{context} context", context
    return f"{size}, {context} context", f"{size}-{context}"


def lines(points: Mapping[str, Points]) -> list[Series]:
    """A curve for each arm, in its colour; a recipe comes after the arm it changes."""
    order = {arm: number for number, arm in enumerate(ARMS)}
    return [
        Series(
            ARMS[arm].title,
            colour(arm),
            through,
            square=not ARMS[arm].ngpt,
            dotted=arm not in MAIN,
        )
        for arm, through in sorted(
            points.items(), key=lambda item: (order[ARMS[item[0]].base or item[0]], order[item[0]])
        )
    ]


def colour(arm: str) -> Role:
    """The colour of an arm; a recipe has that of the arm it changes."""
    return dict(zip(MAIN, _ROLES, strict=True))[ARMS[arm].base or arm]


def _losses(name: str, title: str, x: Axis, losses: Mapping[str, Points]) -> Chart:
    series = lines(losses)
    ends = "; ".join(f"{line.label} {line.points[-1][1]:.3f}" for line in series)
    described = f"Validation loss at the ends: {ends}."
    return Chart(name, title, described, x, Axis("validation loss"), series)


def _with_span(chart: Chart, found: Answer | None) -> Chart:
    """Add the share of GPT's tokens that the best nGPT needs, unless it is extrapolated, and the
    share of the best baseline's, because the first alone would promise too much."""
    if found is None:
        return chart
    needed, reading = found.of_gpt, found.of_gpt.reading
    if reading.outside or reading.factor.extrapolated:
        return chart
    left, right = reading.factor.needed / 1e6, needed.end.tokens / 1e6
    text = f"{ARMS[needed.arm].title}: {reading.value()} of GPT's tokens"
    if found.of_best.end.arm != needed.end.arm:
        text += f",\n{found.of_best.reading.value()} of the best baseline's"
    span = Span(left, right, needed.end.loss, text)
    return dataclasses.replace(chart, description=f"{chart.description} {found}", span=span)


def _late(run: Record) -> Points:
    """The curve after the first fifth of the run, which would flatten the rest."""
    return [(tokens / 1e6, loss) for tokens, loss in run.curve if tokens > 0.2 * run.tokens]
