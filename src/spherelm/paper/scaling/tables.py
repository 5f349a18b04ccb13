"""Tables of runs, of factors and of the time of steps, as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from spherelm.paper import fit
from spherelm.paper.scaling import times
from spherelm.paper.scaling.best import (
    Best,
    best_settings,
    other_settings,
    place_of,
    places,
    variant_of,
)
from spherelm.paper.scaling.grid import ARMS
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.scaling.words import RUN, cells, millions, thousands
from spherelm.paper.store import Record
from spherelm.plots import markdown

_NEEDED = ("it needs", "factor", "90 %", "in seconds")
_FACTOR = ("model", "context", "baseline", "arm", "tokens", "loss", "seeds", *_NEEDED)
_STEP = ("model", "context", "arm", "tokens", "ms", "quartiles", "tokens/s", "/ GPT")


def runs(records: Sequence[Record]) -> Iterator[str]:
    """Every run but the ablations, which have tables of their own."""
    yield "Every run, best first within its context and budget:"

    def rank(r: Record) -> tuple[Any, ...]:
        return *place_of(r.config), r.tokens, not r.finished, r.curve[-1:][0][1:]

    shown = sorted((r for r in records if not variant_of(r.id)), key=rank)
    ends = [f"{r.loss:.3f}" if r.finished else "did not finish" for r in shown]
    rows = ([*cells(r), end, f"{r.seconds:.0f}"] for r, end in zip(shown, ends, strict=True))
    yield markdown.table((*RUN, "final loss", "steps, s"), rows)


# --- factors -------------------------------------------------------------------------------------


def factors(records: Sequence[Record], steps: Sequence[StepTime]) -> Iterator[str]:
    """How many times the tokens of an nGPT each baseline needs, and plain GPT those of the other
    baselines."""
    rows = list(_factor_rows(records, steps))
    if not rows:
        return
    yield (
        "Tokens that a baseline needs for the loss at which another arm ends, for every baseline "
        "with two budgets or more. The factor is one of tokens; in seconds it is multiplied by "
        "the baseline's time for a token over the arm's, where both were timed:"
    )
    yield markdown.table(_FACTOR, rows)


def _factor_rows(records: Sequence[Record], steps: Sequence[StepTime]) -> Iterator[list[str]]:
    bests = best_settings(records)
    others = other_settings(records, bests)
    for size, context in places(bests):
        here = [b for b in bests if (b.size, b.context) == (size, context)]
        for name in (name for name, arm in ARMS.items() if not arm.ngpt):
            baseline = {b.tokens: b.losses for b in here if b.arm == name}
            for b in here if len(baseline) > 1 else ():
                if b.arm == name or not (ARMS[b.arm].ngpt or name == "gpt"):
                    continue
                quicker = times.ratio(steps, (name, size, context), (b.arm, size, context))
                repeats = others[name, size, context] + others[b.arm, size, context]
                if (factor := _factor(baseline, b, repeats, quicker)) is not None:
                    yield [
                        size,
                        thousands(context),
                        ARMS[name].title,
                        ARMS[b.arm].title,
                        millions(b.tokens),
                        f"{b.loss:.3f}",
                        str(len(b.runs)),
                        *factor,
                    ]


def _factor(
    baseline: fit.Losses, best: Best, repeats: Sequence[Sequence[float]], quicker: float | None
) -> list[str] | None:
    """Tokens that are needed, the factor, its interval, and the factor in seconds: a token takes
    the baseline `quicker` times as long. None where nothing is known."""
    found = fit.factor(baseline, best.tokens, best.losses, repeats)
    if found is None:
        most = max(baseline) / best.tokens
        reached = best.loss >= statistics.fmean(baseline[max(baseline)])
        if most < 1 or reached:  # the baseline was not run with as many tokens, or with as few
            return None
        seconds = "-" if quicker is None else f"over {most * quicker:.2f}"
        return [f"over {millions(max(baseline))}, not measured", f"over {most:.2f}", "-", seconds]
    beyond = " (extrapolated)" if found.extrapolated else ""
    interval = _interval(found, 1) or "one seed"
    seconds = "-"
    if quicker is not None:
        within = _interval(found, quicker)
        seconds = f"{found.value * quicker:.2f}" + (f" ({within})" if within else "")
    return [f"{found.needed / 1e6:.0f}M{beyond}", f"{found.value:.2f}", interval, seconds]


def _interval(found: fit.Factor, quicker: float) -> str:
    if found.low is None or found.high is None:
        return ""
    if math.isinf(found.high):
        return f"over {found.low * quicker:.2f}"
    return f"{found.low * quicker:.2f} to {found.high * quicker:.2f}"


# --- steps ---------------------------------------------------------------------------------------


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
        longer = times.ratio(timed, step.model, ("gpt", step.size, step.context))
        yield [
            step.size,
            thousands(step.context),
            ARMS[step.arm].title,
            f"{step.tokens:,}",
            f"{step.median_ms:.1f}",
            f"{step.low_ms:.1f} to {step.high_ms:.1f}",
            f"{step.tokens_per_s:,}",
            "-" if longer is None else f"{longer:.3f}",
        ]
