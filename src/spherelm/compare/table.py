"""The table and the one-sentence verdict of a comparison, for both terminal and report."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from spherelm.compare.comparison import Comparison, Side
from spherelm.console import format_seconds


@dataclass(frozen=True)
class Row:
    """A quantity of both models."""

    what: str
    gpt: str
    ngpt: str


def rows(c: Comparison) -> list[Row]:
    """What the two models cost and reached."""

    def of_both(what: str, show: Callable[[Side], str]) -> Row:
        return Row(what, show(c.gpt), show(c.ngpt))

    table = [of_both("final validation loss", lambda side: f"{side.final_loss:.3f}")]
    if all(side.bits_per_byte is not None for side in c.sides):
        table.append(of_both("bits per byte", lambda side: f"{side.bits_per_byte:.3f}"))
    table.append(of_both("tokens trained on", lambda side: f"{side.tokens:,}"))
    if (at := c.crossing) is not None and at.is_sooner:
        first, second = at.first.arch, at.second.arch
        what = f"tokens to {at.second.name}'s final loss"
        table.append(Row(what, **{first: f"{at.tokens:,.0f}", second: f"{at.second.tokens:,}"}))
        factors = {first: f"{at.speedup_tokens:.2f}", second: "1"}
        table.append(Row("speed-up in tokens, one seed", **factors))
    table.append(of_both("seconds per step", lambda side: f"{side.seconds_per_step:.3f}"))
    table.append(of_both("time of all steps", lambda s: format_seconds(s.seconds_for(s.tokens))))
    if (record := c.record) is not None:
        what = f"{len(record.leads)} other seeds ended at, as recorded"
        table.append(of_both(what, lambda s: record.ends(s.arch)))
    return table


def verdict(c: Comparison) -> str:
    """The result in a sentence; where no other seeds were recorded, it claims this one alone."""
    if (at := c.crossing) is None:
        return (
            f"No difference beyond chance: GPT ended at {c.gpt.final_loss:.3f}, "
            f"nGPT at {c.ngpt.final_loss:.3f}"
        )
    beginning = "nGPT" if at.first.arch == "ngpt" else "GPT was ahead: it"
    if c.record is None:
        beginning = f"At this seed, {beginning}"
    if not at.is_sooner:
        ends = f"{at.first.final_loss:.3f}, below {at.second.name}'s {at.second.final_loss:.3f}"
        return f"{beginning} ended at {ends}, with the same tokens"
    needed = f"{at.speedup_tokens:.2f}\u00d7 fewer tokens"
    return f"{beginning} reached {at.second.name}'s final loss with {needed}"


def caveat(c: Comparison) -> str:
    """How far a single run of each model can be trusted."""
    if c.record is None:
        return (
            "One seed: this may be chance. How far other seeds move these two models has not been "
            "recorded."
        )
    gpt, ngpt = (c.record.ends(arch) for arch in ("gpt", "ngpt"))
    leads, noise = c.record.leads, c.record.noise
    lead = f"{statistics.fmean(leads):.3f} \u00b1 {noise:.3f}"
    return (
        f"This is one seed, and a seed moves both models together: {len(leads)} others ended at "
        f"{gpt} (GPT) and {ngpt} (nGPT), a lead of {lead}. A difference below {2 * noise:.3f} "
        "counts as none."
    )
