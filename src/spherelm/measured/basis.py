"""What a choice was made from, and the lines in which people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.console import format_count
from spherelm.measured.settings import Size

WIDTHS = "docs/results/width.md"
"""Where it is measured how the best rate depends on the width."""
ALIKE = 1.2
"""Ratios below it are not worth a word."""


@dataclass(frozen=True)
class Optimum:
    """The best rate at a number of tokens."""

    tokens: int
    lr: float
    muon_ratio: float
    tried: tuple[tuple[float, float], ...]
    """All rates that were compared: (lr, Muon's as a multiple)."""
    diverged: tuple[tuple[float, float], ...] = ()
    """Those of them whose runs diverged."""


@dataclass(frozen=True)
class Better:
    """Another algorithm with which runs of the same model and tokens ended lower."""

    algorithm: str
    below: float
    """By how much, in validation loss."""
    tokens: int


@dataclass(frozen=True)
class Basis:
    """What a choice was made from."""

    page: str
    size: Size
    optima: tuple[Optimum, ...]
    """The one or two that the rate was read off."""
    unlike: tuple[str, ...]
    """Fields in which the run is of another kind than the runs that were measured."""
    schedule: str
    """That of the measured runs."""
    by_width: float = 1.0
    """What the measured rate was multiplied by, for another width."""
    better: Better | None = None
    """Unset where none is, or where an algorithm was asked for."""


def lines(run: RunConfig, chosen: Mapping[str, Any], basis: Basis) -> tuple[str, ...]:
    """The values of `run` that were chosen, where they come from, and what would be better."""
    plain = dict(flatten(to_dict(RunConfig())))
    told = {k: v for k, v in chosen.items() if k == "optim.lr" or v != plain.get(k)}
    values = ", ".join(f"{name} {_value(value)}" for name, value in told.items())
    far = _far(run, basis)
    guess = f"this run has {', '.join(far)}: a guess there" if far else "this run is like those"
    found = (
        f"no rate is given, so chosen from measured runs: {values} (--lr or --preset sets others)",
        f"measured {_measured(basis)}; {guess} ({basis.page})",
    )
    if (better := basis.better) is None:
        return found
    return (
        *found,
        f"with --optim.algorithm {better.algorithm} such runs ended {better.below:.2f} lower at "
        f"{format_count(better.tokens)} tokens",
    )


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _measured(basis: Basis) -> str:
    size = basis.size
    optima = " and ".join(_optimum(optimum) for optimum in basis.optima)
    measured = (
        f"with {size.n_layers} layers of width {size.d_model} in context {size.context}, "
        f"{size.tokens_per_step:,} tokens a step: {optima}"
    )
    if basis.by_width == 1:
        return measured
    source = "" if basis.page == WIDTHS else f" ({WIDTHS})"
    return f"{measured}, times {basis.by_width:.2g} for the width{source}"


def _optimum(optimum: Optimum) -> str:
    rate, lrs = f"{optimum.lr:.3g}", sorted({lr for lr, _ in optimum.tried})
    if optimum.muon_ratio != 1 or any(ratio != 1 for _, ratio in optimum.tried):
        rate += f" and {optimum.lr * optimum.muon_ratio:.3g} for Muon"
        one_of = (optimum.lr, optimum.muon_ratio) in optimum.tried  # else a parabola's lowest point
        tried = f"{'best of' if one_of else 'read off'} {len(optimum.tried)} pairs tried"
        tried += f", {len(optimum.diverged)} of which diverged" if optimum.diverged else ""
    else:
        failed = {lr for lr, _ in optimum.diverged}
        tried = f"tried: {', '.join(f'{lr:.3g}' for lr in lrs if lr not in failed)}"
        tried += f"; diverged: {', '.join(f'{lr:.3g}' for lr in sorted(failed))}" if failed else ""
        edge = {lrs[0]: "below", lrs[-1]: "above"}.get(optimum.lr)
        tried += f"; the best may lie {edge}" if edge else ""
    if len(optimum.tried) == 1:
        # Others may have been tried with other values, such as another weight decay.
        tried = "the only rate tried with these values"
    return f"{rate} at {format_count(optimum.tokens)} tokens ({tried})"


def _far(run: RunConfig, basis: Basis) -> list[str]:
    """In what a run lies outside of what was measured."""
    own, theirs = Size.of(run), basis.size
    held = min(basis.optima[-1].tokens, max(basis.optima[0].tokens, run.tokens))
    pairs = {
        f"the parameters in blocks ({format_count(own.parameters)})": own.parameters
        / theirs.parameters,
        f"the context ({own.context})": own.context / theirs.context,
        f"the tokens a step ({own.tokens_per_step:,})": own.tokens_per_step
        / theirs.tokens_per_step,
        f"the tokens ({format_count(run.tokens)})": run.tokens / held,
    }
    far = [
        f"{_times(ratio)} {what}" for what, ratio in pairs.items() if not 1 / ALIKE < ratio < ALIKE
    ]
    far += [f"another {name}" for name in basis.unlike]
    if run.optim.schedule != basis.schedule:
        far.append("another optim.schedule")
    return far


def _times(ratio: float) -> str:
    """2.5 times, 70 % of, 1/4 of"""
    if 0.5 < ratio < 1:
        return f"{100 * ratio:.0f} % of"
    large = max(ratio, 1 / ratio)
    number = f"{large:,.0f}" if large >= 10 else f"{large:.2g}"
    return f"{number} times" if ratio > 1 else f"1/{number} of"
