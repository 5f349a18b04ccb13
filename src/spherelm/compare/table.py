"""The one table of a comparison, and its one sentence; the terminal and the report show both."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.compare.pair import Comparison
from spherelm.train.report.reporter import format_seconds


@dataclass(frozen=True)
class Row:
    """A quantity of both models."""

    what: str
    gpt: str
    ngpt: str


def rows(c: Comparison) -> list[Row]:
    """What the two models cost and reached."""
    gpt, ngpt = c.sides
    table = [Row("final validation loss", f"{gpt.final_loss:.3f}", f"{ngpt.final_loss:.3f}")]
    if gpt.bits_per_byte is not None and ngpt.bits_per_byte is not None:
        bits = (f"{side.bits_per_byte:.3f}" for side in c.sides)
        table.append(Row("bits per byte", *bits))
    table.append(Row("tokens trained on", f"{gpt.tokens:,}", f"{ngpt.tokens:,}"))
    if (at := c.crossing) is not None:
        first, second = at.first.arch, at.second.arch
        what = f"tokens to {at.second.name}'s final loss"
        table.append(Row(what, **{first: f"{at.tokens:,.0f}", second: f"{at.second.tokens:,}"}))
        factors = {first: f"{at.speedup_tokens:.2f}", second: "1"}
        table.append(Row("speed-up in tokens, one seed", **factors))
    table += [
        Row("seconds per step", f"{gpt.seconds_per_step:.3f}", f"{ngpt.seconds_per_step:.3f}"),
        Row(
            "time of all steps",
            *(format_seconds(side.seconds_for(side.tokens)) for side in c.sides),
        ),
    ]
    if c.record is not None:
        ends = (c.record.ends(side.arch) for side in c.sides)
        table.append(Row("such runs ended at, as recorded", *ends))
    return table


def verdict(c: Comparison) -> str:
    """The result in a sentence."""
    if (at := c.crossing) is None:
        return (
            f"No difference beyond chance: GPT ended at {c.gpt.final_loss:.3f}, "
            f"nGPT at {c.ngpt.final_loss:.3f}"
        )
    beginning = "nGPT" if at.first.arch == "ngpt" else "GPT was ahead: it"
    needed = f"{at.speedup_tokens:.2f}\u00d7 fewer tokens"
    return f"{beginning} reached {at.second.name}'s final loss with {needed}"


def caveat(c: Comparison) -> str:
    """How far one run of each model can be believed."""
    if c.record is None:
        return (
            "One seed: another may give another answer, and how far seeds move these two models "
            "has not been recorded."
        )
    gpt, ngpt = (c.record.ends(arch) for arch in ("gpt", "ngpt"))
    seeds = len(c.record.losses["gpt"])
    return (
        f"One seed. Over {seeds} others the same two runs ended at {gpt} (GPT) and {ngpt} (nGPT), "
        f"so a difference below {2 * c.record.noise:.3f} counts as none."
    )
