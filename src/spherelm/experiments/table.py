"""The one table of a comparison, and its one sentence; the terminal and the report show both."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.experiments.compare import Comparison
from spherelm.train.reporter import format_seconds


@dataclass(frozen=True)
class Row:
    """A quantity of both models."""

    what: str
    gpt: str
    ngpt: str


def rows(c: Comparison) -> list[Row]:
    """What the two models cost and reached."""
    gpt, ngpt = c.sides
    reached = c.tokens_to_gpt_loss
    table = [Row("final validation loss", f"{gpt.final_loss:.3f}", f"{ngpt.final_loss:.3f}")]
    if gpt.bits_per_byte is not None and ngpt.bits_per_byte is not None:
        bits = (f"{side.bits_per_byte:.3f}" for side in c.sides)
        table.append(Row("bits per byte", *bits))
    table += [
        Row("tokens trained on", f"{gpt.tokens:,}", f"{ngpt.tokens:,}"),
        Row("tokens to GPT's final loss", f"{gpt.tokens:,}", _or(reached, ",.0f", "not reached")),
        Row("speed-up in tokens", "1", _or(c.speedup_tokens, ".2f", "-")),
        Row("seconds per step", f"{gpt.seconds_per_step:.3f}", f"{ngpt.seconds_per_step:.3f}"),
        Row(
            "time of all steps",
            *(format_seconds(side.seconds_for(side.tokens)) for side in c.sides),
        ),
        Row("speed-up in time", "1", _or(c.speedup_seconds, ".2f", "-")),
    ]
    return table


def verdict(c: Comparison) -> str:
    """The result in a sentence."""
    if c.speedup_tokens is None:
        return f"nGPT did not reach GPT's loss of {c.gpt.final_loss:.3f} on these tokens"
    return f"nGPT reached GPT's final loss with {c.speedup_tokens:.2f}\u00d7 fewer tokens"


def _or(value: float | None, form: str, otherwise: str) -> str:
    return otherwise if value is None else format(value, form)
