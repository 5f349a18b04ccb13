"""Tables of runs and of step times, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from spherelm.paper.scaling import times
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.identity import Place, arm_of, setting_of, variant_of
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.scaling.words import RUN, cells, number
from spherelm.paper.store import Record
from spherelm.plots import markdown

_STEP = ("model", "context", "arm", "tokens", "ms", "quartiles", "tokens/s", "/ GPT")


def runs(records: Sequence[Record]) -> Iterator[str]:
    """Every run except the ablations, which have tables of their own."""
    yield "Best first within its model, context and budget:"

    def rank(r: Record) -> tuple[Any, ...]:
        end = [loss for _, loss in r.curve[-1:]]
        return Place.of(r.config).rank(), r.tokens, not r.finished, end

    shown = sorted((r for r in records if not variant_of(r.id)), key=rank)
    rows = ([*cells(r), _end(r), f"{r.seconds:.0f}"] for r in shown)
    yield markdown.table((*RUN, "final loss", "steps, s"), rows)


def _end(record: Record) -> str:
    if record.finished:
        return f"{record.loss:.3f}"
    return "diverged" if record.diverged else "did not finish"


def tried(records: Sequence[Record]) -> Iterator[str]:
    """How many settings each arm was given, counting those that diverged: the more, the better its
    best one is bound to be."""
    ended = [r for r in records if (r.finished or r.diverged) and not variant_of(r.id)]
    settings = {(Place.of(r.config), arm_of(r.config), setting_of(r.id)[0]) for r in ended}
    counts = Counter((place, arm) for place, arm, _ in settings if ARMS[arm].compared)
    for place in sorted({place for place, _ in counts}, key=Place.rank):
        found = {arm: counts[place, arm] for arm in ARMS if counts[place, arm]}
        told = "; ".join(f"{ARMS[arm].title}: {count}" for arm, count in found.items())
        yield f"{place}, seeds apart. {told}."


def steps(timed: Sequence[StepTime]) -> Iterator[str]:
    """The time of a training step of each arm."""
    if not timed:
        return
    made_with = dict.fromkeys(f"{step.device}, torch {step.torch}, {step.date}" for step in timed)
    yield (
        "A training step, nothing else on the device, the arms by turns: the median of 20 and "
        f"their quartiles ({'; '.join(made_with)}):"
    )
    yield markdown.table(_STEP, _step_rows(timed))


def _step_rows(timed: Sequence[StepTime]) -> Iterator[list[str]]:
    for step in timed:
        longer = times.ratio(timed, step.model, ("gpt", step.place))
        yield [
            *step.place.cells,
            ARMS[step.arm].title,
            f"{step.tokens:,}",
            f"{step.median_ms:.1f}",
            f"{step.low_ms:.1f} to {step.high_ms:.1f}",
            f"{step.tokens_per_s:,}",
            number(longer, ".3f"),
        ]
