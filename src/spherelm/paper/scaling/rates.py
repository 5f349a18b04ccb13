"""Final loss against the highest rate for each arm, as Markdown and as a picture, to see whether
the best rate lies between others that were tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.figures import lines, named
from spherelm.paper.scaling.identity import Place, arm_of, variant_of
from spherelm.paper.scaling.words import SETTING, millions, setting
from spherelm.paper.store import Record
from spherelm.plots import markdown
from spherelm.plots.chart import Axis, Chart

_WHO = SETTING[:-1]
_ABOVE = 0.3
"""Curves are cut off this far above the worst arm's best loss."""


@dataclass(frozen=True)
class Ladder:
    """Runs that differ only in their rate, the lowest first."""

    runs: Mapping[float, Record]

    @property
    def first(self) -> Record:
        return next(iter(self.runs.values()))

    @property
    def finished(self) -> list[tuple[float, float]]:
        """(rate, loss) of each run that finished."""
        return [(rate, run.loss) for rate, run in self.runs.items() if run.finished]

    @property
    def best(self) -> float:
        return min(self.finished, key=itemgetter(1))[0]

    @property
    def inside(self) -> str:
        """Whether the best rate has a worse one on both sides of it."""
        rates = list(self.runs)
        if self.best == rates[0]:
            return "none lower"
        return "none higher" if self.best == rates[-1] else "yes"


def ladders(records: Sequence[Record]) -> list[Ladder]:
    """The ladders with at least two rates at one seed (the first, if there are several). Runs with
    a separate rate for Muon and the paper's ablations are left out."""
    found: dict[tuple[str, ...], dict[int, dict[float, Record]]] = {}
    for record in records:
        optim, seed = record.config.optim, record.seed
        alike = optim.muon_lr in (None, optim.lr)
        if alike and not variant_of(record.id) and (record.finished or record.diverged):
            who = tuple(setting(record)[:-1])
            found.setdefault(who, {}).setdefault(seed, {})[optim.lr] = record
    several = (
        Ladder(dict(sorted(rates.items())))
        for seeds in found.values()
        for _, rates in sorted(seeds.items())[:1]
        if len(rates) > 1 and any(run.finished for run in rates.values())
    )
    return sorted(several, key=lambda ladder: _place(ladder.first))


def tables(records: Sequence[Record]) -> Iterator[str]:
    """One table, a row for each setting, a column for each rate."""
    rows = ladders(records)
    if not rows:
        return
    rates = sorted({rate for ladder in rows for rate in ladder.runs})
    yield (
        "Final losses of runs that differ by their rate alone, all of one seed, the "
        "lowest bold. With Muon both rates are alike. Inside: whether worse rates were tried on "
        "both sides of the best, or on which side there was none."
    )
    head = (*_WHO, "seed", *(f"{rate:g}" for rate in rates), "inside")
    yield markdown.table(head, (_row(ladder, rates) for ladder in rows))


def _row(ladder: Ladder, rates: Sequence[float]) -> list[str]:
    first = ladder.first
    losses = [_cell(ladder, rate) for rate in rates]
    return [*setting(first)[:-1], str(first.seed), *losses, ladder.inside]


def _cell(ladder: Ladder, rate: float) -> str:
    run = ladder.runs.get(rate)
    if run is None:
        return ""
    if not run.finished:
        return "diverged"
    return f"**{run.loss:.3f}**" if rate == ladder.best else f"{run.loss:.3f}"


def charts(records: Sequence[Record]) -> list[Chart]:
    """A chart per model and context, at the budget with the most rates tried; of each arm it shows
    the setting with the most rates."""
    tried: dict[Place, dict[int, list[Ladder]]] = {}
    for ladder in ladders(records):
        budgets = tried.setdefault(Place.of(ladder.first.config), {})
        budgets.setdefault(ladder.first.tokens, []).append(ladder)
    return [
        _chart(place, max(budgets.values(), key=lambda each: sum(len(it.runs) for it in each)))
        for place, budgets in tried.items()
    ]


def _chart(place: Place, tried: Sequence[Ladder]) -> Chart:
    what, name = named(place)
    longest = {arm_of(it.first.config): it for it in sorted(tried, key=lambda it: len(it.runs))}
    series = lines({arm: ladder.finished for arm, ladder in longest.items()})
    lowest = [min(line.points, key=itemgetter(1)) for line in series]
    best = (f"{line.label} {rate:g}" for line, (rate, _) in zip(series, lowest, strict=True))
    rates = sorted({rate for ladder in longest.values() for rate in ladder.runs})
    return Chart(
        f"rates-{name}",
        f"Loss over the highest rate, {millions(tried[0].first.tokens)} tokens, {what}",
        f"The rate with the lowest final validation loss: {'; '.join(best)}.",
        Axis("highest rate", log=True, ticks=[(rate, f"{rate:g}") for rate in rates]),
        Axis("validation loss", top=max(loss for _, loss in lowest) + _ABOVE),
        series,
    )


def _place(run: Record) -> tuple[object, ...]:
    return Place.of(run.config).rank(), run.tokens, list(ARMS).index(arm_of(run.config))
