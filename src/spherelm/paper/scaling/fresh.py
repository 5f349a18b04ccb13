"""The comparison repeated with only those seeds that took no part in choosing, as Markdown.

The setting that ends lowest at a seed is not only good but was also lucky there: a mean that
includes that seed is too low, the more so the more settings an arm was given. A seed took no part
in the choice if no other setting of the arm was run with it at that budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from spherelm.paper.scaling import chance
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.best import Best, places
from spherelm.paper.scaling.identity import settings
from spherelm.paper.scaling.needed import Ends
from spherelm.paper.scaling.words import millions
from spherelm.paper.store import Record
from spherelm.plots import markdown

_COLUMNS = ("model", "context", "tokens", "baseline", "loss", "arm", "seeds", *chance.COLUMNS[:3])


def tables(records: Sequence[Record]) -> Iterator[str]:
    """One table of the baselines and nGPTs that have such seeds in common."""
    ends = Ends.of(records)
    every = settings(records)
    chosen = {best.key for best in ends.bests if len(every[best.key]) > 1}
    fresh = {best.key: best for best in chosen_by_others(ends.bests, records)}
    ends = Ends([fresh.get(best.key, best) for best in ends.bests], ends.noises)
    pairs = (pair for pair in _pairs(list(fresh.values())) if chosen & {best.key for best in pair})
    rows = [row for pair in pairs for row in _row(*pair, ends)]
    if rows:
        yield (
            "A setting is chosen where it ends lowest, so it was lucky "
            "there, too, and its mean with that seed is too low. Here are the seeds with which no "
            "other setting of the arm was run at that budget, the same on both sides; shares are "
            f"read off from such seeds wherever an arm has them. {chance.BY_CHANCE}"
        )
        yield markdown.table((*_COLUMNS, "share", "90 %"), rows)


def chosen_by_others(bests: Sequence[Best], records: Sequence[Record]) -> Iterator[Best]:
    """The best settings, each with only the seeds that no other setting of its arm has: all seeds
    if it was the only setting. Settings without such seeds are left out."""
    every = settings(records)
    for best in bests:
        chose = {seed for other in every[best.key] if other != best.runs for seed in other}
        runs = {seed: run for seed, run in best.runs.items() if seed not in chose}
        if runs:
            yield dataclasses.replace(best, runs=runs)


def _pairs(fresh: Sequence[Best]) -> Iterator[tuple[Best, Best]]:
    """Every baseline paired with every nGPT of the same size, context and budget."""
    for place in places(fresh):
        here = [best for best in fresh if best.place == place]
        for end in (best for best in here if not ARMS[best.arm].ngpt):
            yield from (
                (end, best) for best in here if ARMS[best.arm].ngpt and best.tokens == end.tokens
            )


def _row(end: Best, best: Best, ends: Ends) -> Iterator[list[str]]:
    shared = sorted(end.runs.keys() & best.runs.keys())
    theirs = {seed: end.runs[seed] for seed in shared}
    end = dataclasses.replace(end, runs=theirs)
    if not shared or (needed := ends.needed(best.arm, end)) is None:
        return
    yield [
        *end.place.cells,
        millions(end.tokens),
        ARMS[end.arm].title,
        f"{end.loss:.3f}",
        ARMS[best.arm].title,
        ", ".join(map(str, shared)),
        *chance.cells(best.runs, theirs, ends.noises.get(end.place))[:3],
        needed.reading.value(),
        needed.reading.certainty,
    ]
