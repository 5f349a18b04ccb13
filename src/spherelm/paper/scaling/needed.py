"""Tokens that one arm needs for the loss at which another ends, as Markdown and for figures.

The question is asked both ways. What a baseline needs for an nGPT's final loss may lie beyond all
budgets the baseline was run with. What nGPT needs for a baseline's mostly lies between its own
runs, so nothing is extrapolated.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from spherelm.console import format_context
from spherelm.paper import fit
from spherelm.paper.noise import Noise
from spherelm.paper.scaling import times
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.best import Best, best_settings, places
from spherelm.paper.scaling.chance import Noises, noises
from spherelm.paper.scaling.identity import Place
from spherelm.paper.scaling.point import CONTEXT, SMALL
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.scaling.words import millions
from spherelm.paper.store import Record
from spherelm.plots import markdown

GPT = "gpt"
"""The paper's kind of baseline."""
ASKED = Place(SMALL, CONTEXT)
"""The size and context at which the study's two questions are asked."""
_END = ("tokens", "loss", "seeds")
_FACTOR = ("model", "context", "baseline", "arm", *_END, "it needs", "factor", "90 %", "in seconds")
_SHARE = ("model", "context", "baseline", *_END, "arm", "it needs", "share", "90 %", "in seconds")


@dataclass(frozen=True)
class Reading:
    """What a curve needs for the loss at which another run ended."""

    factor: fit.Factor
    outside: Literal["", "over", "under"] = ""
    """"over" if the loss is below all ends of the curve, which then needs more tokens than its
    largest budget; "under" if it is above all, so that it needs fewer than its smallest. `factor`
    then holds the tokens of that budget, and only that end of the interval which is towards the
    curve, limited to that budget; the other end is unknown."""

    @property
    def tokens(self) -> str:
        told = f"{self.outside} {self.factor.needed / 1e6:.0f}M".strip()
        if self.outside:
            return f"{told}, not measured"
        return f"{told} (extrapolated)" if self.factor.extrapolated else told

    def value(self, longer: float = 1.0) -> str:
        """The factor of tokens, or that of seconds if a token takes the curve `longer` times as
        long."""
        return f"{self.outside} {self.factor.value * longer:.2f}".strip()

    def interval(self, longer: float = 1.0) -> str:
        """The 90 % interval; empty if no setting of the study has a second seed."""
        low, high = self.factor.low, self.factor.high
        if low is None or high is None:
            return ""
        if math.isinf(high):
            return f"over {low * longer:.2f}"
        if low == 0:
            return f"under {high * longer:.2f}"
        return f"{low * longer:.2f} to {high * longer:.2f}"

    @property
    def certainty(self) -> str:
        """The interval as it stands in a table."""
        return self.interval() or ("-" if self.outside else "one seed")

    def told(self, longer: float = 1.0) -> str:
        """The factor, with its interval if that adds anything."""
        value, interval = self.value(longer), self.interval(longer)
        return value if interval in ("", value) else f"{value} ({interval})"


def read_off(
    curve: fit.Losses, tokens: int, losses: Sequence[float], noise: Noise | None = None
) -> Reading | None:
    """What `curve` needs for the losses that another arm has after `tokens`, as in `fit.factor`.

    If no run of `curve` is as good, it needs more tokens than its largest budget; if none is as
    bad, fewer than its smallest. None if that would not tell which of the two needs fewer: "more
    than half of `tokens`" may be more or fewer than all of them. (A budget of exactly `tokens`
    does tell.)
    """
    if len(curve) < 2:
        return None
    found = fit.factor(curve, tokens, losses, noise)
    if found is not None:
        return Reading(found)
    least, most, loss = min(curve), max(curve), statistics.fmean(losses)
    low, high = (None, None) if noise is None else fit.interval(curve, losses, noise)
    if most >= tokens and loss < statistics.fmean(curve[most]):
        low = None if low is None else min(low, most) / tokens
        return Reading(fit.Factor(tokens, most, False, low, math.inf), "over")
    if least <= tokens and loss > statistics.fmean(curve[least]):
        high = None if high is None or math.isinf(high) else max(high, least) / tokens
        return Reading(fit.Factor(tokens, least, False, 0.0, high), "under")
    return None


@dataclass(frozen=True)
class Needed:
    """What `arm` needs for the loss at which another ended."""

    arm: str
    end: Best
    reading: Reading


@dataclass(frozen=True)
class Ends:
    """Where the arms of the study ended."""

    bests: Sequence[Best]
    noises: Noises

    @classmethod
    def of(cls, records: Sequence[Record]) -> Ends:
        chances = noises(records)
        return cls(best_settings(records, chances), chances)

    def at(self, place: Place) -> list[Best]:
        return [b for b in self.bests if b.place == place]

    def curve(self, arm: str, place: Place) -> fit.Losses:
        return {b.tokens: b.losses for b in self.at(place) if b.arm == arm}

    def needed(self, arm: str, end: Best) -> Needed | None:
        """What `arm` needs for the loss of `end`; None if that is unknown."""
        curve, noise = self.curve(arm, end.place), self.noises.get(end.place)
        found = read_off(curve, end.tokens, end.losses, noise)
        return None if found is None else Needed(arm, end, found)


# --- the two questions ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The share of GPT's tokens, and of the best baseline's, that the best nGPT needs."""

    of_gpt: Needed
    of_best: Needed

    def __str__(self) -> str:
        end, best = self.of_gpt.end, self.of_best.end
        line = (
            f"At {format_context(end.place.context)} and {millions(end.tokens)} tokens: "
            f"{ARMS[self.of_gpt.arm].title} needs {_told(self.of_gpt.reading)} of the tokens of "
            f"{ARMS[end.arm].title}"
        )
        if best.arm == end.arm:
            return f"{line}, which is the best baseline, too."
        of_best = (
            f"{_told(self.of_best.reading)} of those of the best baseline, {ARMS[best.arm].title}"
        )
        return f"{line} and {of_best}."


def answer(ends: Ends, place: Place) -> Answer | None:
    """The answer at the largest budget shared by GPT and an nGPT with a curve; the best arms are
    those that end lowest there. None if either part is unknown."""
    here = ends.at(place)
    curves = [b for b in here if ARMS[b.arm].ngpt and len(ends.curve(b.arm, place)) > 1]
    gpts = {b.tokens: b for b in here if b.arm == GPT}
    shared = gpts.keys() & {b.tokens for b in curves}
    if not shared:
        return None
    tokens = max(shared)
    arm = min((b for b in curves if b.tokens == tokens), key=lambda b: b.loss).arm
    baselines = [b for b in here if b.tokens == tokens and not ARMS[b.arm].ngpt]
    of_gpt = ends.needed(arm, gpts[tokens])
    of_best = ends.needed(arm, min(baselines, key=lambda b: b.loss))
    return None if of_gpt is None or of_best is None else Answer(of_gpt, of_best)


def _told(found: Reading) -> str:
    if found.outside:
        return found.told()
    interval = found.interval()
    told = f"90 %: {interval}" if interval else "one seed"
    beyond = ", extrapolated" if found.factor.extrapolated else ""
    return f"{found.value()} ({told}{beyond})"


# --- tables --------------------------------------------------------------------------------------


def sentence(ends: Ends) -> Iterator[str]:
    """The answer in one sentence, if there is one."""
    if (found := answer(ends, ASKED)) is not None:
        yield str(found)


def shares(ends: Ends, steps: Sequence[StepTime]) -> Iterator[str]:
    """What nGPT needs for the final losses of baselines."""
    if rows := [_row(needed, steps, end_first=True) for needed in _of_baselines(ends)]:
        yield (
            "Tokens that an arm of nGPT needs for the loss at which a baseline ends, its largest "
            "budget first, for every arm of nGPT with two budgets or more. The share is one of the "
            "baseline's tokens; in seconds it is multiplied by the arm's time for a token over the "
            "baseline's, where both were timed:"
        )
        yield markdown.table(_SHARE, rows)


def factors(ends: Ends, steps: Sequence[StepTime]) -> Iterator[str]:
    """What baselines need for the final losses of nGPT, and GPT for those of other baselines."""
    if rows := [_row(needed, steps, end_first=False) for needed in _by_baselines(ends)]:
        yield (
            "Tokens that a baseline needs for the loss at which another arm ends, for every "
            "baseline with two budgets or more. The factor is one of tokens; in seconds it is "
            "multiplied by the baseline's time for a token over the arm's, where both were timed:"
        )
        yield markdown.table(_FACTOR, rows)


def _of_baselines(ends: Ends) -> Iterator[Needed]:
    """What each nGPT needs for the end of each baseline."""
    for place in places(ends.bests):
        here = ends.at(place)
        arms = dict.fromkeys(b.arm for b in here)
        for baseline in (arm for arm in arms if not ARMS[arm].ngpt):
            for end in reversed([b for b in here if b.arm == baseline]):
                found = (ends.needed(arm, end) for arm in arms if ARMS[arm].ngpt)
                yield from (needed for needed in found if needed is not None)


def _by_baselines(ends: Ends) -> Iterator[Needed]:
    """What each baseline needs for the end of each nGPT, and GPT for that of other baselines."""
    for place in places(ends.bests):
        here = ends.at(place)
        for baseline in dict.fromkeys(b.arm for b in here if not ARMS[b.arm].ngpt):
            others = [b for b in here if b.arm != baseline]
            compared = (b for b in others if ARMS[b.arm].ngpt or baseline == GPT)
            found = (ends.needed(baseline, end) for end in compared)
            yield from (needed for needed in found if needed is not None)


def _row(needed: Needed, steps: Sequence[StepTime], *, end_first: bool) -> list[str]:
    """A row of `_SHARE`, or else of `_FACTOR`."""
    end, found = needed.end, needed.reading
    numbers = (millions(end.tokens), f"{end.loss:.3f}", str(len(end.runs)))
    of_end, curve = (ARMS[end.arm].title, *numbers), (ARMS[needed.arm].title,)
    who = (*of_end, *curve) if end_first else (*curve, *of_end)
    longer = times.ratio(steps, (needed.arm, end.place), (end.arm, end.place))
    seconds = "-" if longer is None else found.told(longer)
    needs = found.tokens, found.value(), found.certainty, seconds
    return [*end.place.cells, *who, *needs]
