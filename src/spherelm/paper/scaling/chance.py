"""How much losses differ by chance alone, over seeds of one setting.

All arms of a size and context are assumed to have the same spread over seeds, pooled from all their
settings with several seeds: those are few, and three seeds alone say little about a spread. A size
and context without any borrows the spread of all others: an interval that may be too narrow says
more than a lone number, which would look certain.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from spherelm.paper.noise import Noise
from spherelm.paper.scaling.identity import Place, Runs, first, settings
from spherelm.paper.scaling.words import SETTING, number, setting
from spherelm.paper.store import Record
from spherelm.plots import markdown

Noises = Mapping[Place, Noise]
"""Empty where no setting of the study has several seeds."""

COLUMNS = ("final loss", "difference", "by chance", "change, %")
BY_CHANCE = (
    "By chance: what nine of ten differences of two equal runs stay below, √2 times the standard "
    "deviation over seeds times Student's t; what is beyond it is bold."
)


def noises(records: Sequence[Record]) -> dict[Place, Noise]:
    """The spread over seeds at each size and context, pooled over all arms."""
    groups = _groups(records)
    of_all = Noise.of(losses for group in groups.values() for losses in group)
    if of_all is None:
        return {}
    return {place: Noise.of(group) or of_all for place, group in groups.items()}


def _groups(records: Sequence[Record]) -> dict[Place, list[list[float]]]:
    """At each place the losses of each setting."""
    groups: dict[Place, list[list[float]]] = {}
    for (_, place, _), each in settings(records).items():
        groups.setdefault(place, []).extend([r.loss for r in runs.values()] for runs in each)
    return {place: groups[place] for place in sorted(groups, key=Place.rank)}


def tables(records: Sequence[Record]) -> Iterator[str]:
    """The settings with several seeds, and their pooled spread."""
    every = [runs for each in settings(records).values() for runs in each if len(runs) > 1]
    if not every:
        return
    groups = _groups(records)
    found = {place: noise for place, each in groups.items() if (noise := Noise.of(each))}
    told = "; ".join(
        f"{noise.deviation:.3f} at {place} ({noise.freedom} degrees of freedom)"
        for place, noise in found.items()
    )
    without = [str(place) for place in groups if place not in found]
    borrowed = (
        f" Where no setting has several seeds ({', '.join(without)}), the deviation of all these "
        "settings stands in; it may be another there."
    )
    yield (
        "The settings that were run with several. Intervals and the columns 'by chance' "
        "take one standard deviation for all arms of a size and context, that "
        f"of these settings together: {told}.{borrowed if without else ''}"
    )
    yield markdown.table((*SETTING, "seeds", "mean", "deviation"), map(_row, every))


def _row(runs: Runs) -> list[str]:
    losses = [run.loss for run in runs.values()]
    spread = f"{statistics.fmean(losses):.3f}", f"{statistics.stdev(losses):.3f}"
    return [*setting(first(runs)), str(len(runs)), *spread]


def cells(changed: Runs, unchanged: Runs, noise: Noise | None) -> list[str]:
    """The cells of `COLUMNS`, over the seeds that both have, so that loss and difference are of the
    same runs."""
    shared = sorted(changed.keys() & unchanged.keys())
    loss = statistics.fmean(changed[seed].loss for seed in shared or changed)
    if not shared:
        return [f"{loss:.3f}", "-", "-", "-"]
    difference = statistics.fmean(changed[s].loss - unchanged[s].loss for s in shared)
    base = statistics.fmean(unchanged[seed].loss for seed in shared)
    most = None if noise is None else noise.below(len(shared))
    told = f"{difference:+.3f}"
    if most is not None and abs(difference) > most:
        told = f"**{told}**"
    return [f"{loss:.3f}", told, number(most, ".3f"), f"{100 * difference / base:+.2f}"]
