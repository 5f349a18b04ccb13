"""The values that our measurements recommend for a run that names no rate.

The rule, in this order; distances are in doublings, |log2 of a ratio|:

1. Of all settings those of the run's kind (its architecture in any case, then its algorithm and
   variants: as few fields as possible differ; among kinds that differ in the same fields the one
   with fewer fields of its own, so that GatedAdamW takes AdamW's rates and not Muon's).
2. Of these the series that is nearest: one model at one context and batch, trained for several
   numbers of tokens. The distance is the sum of those in parameters of the blocks, context, tokens
   a step, and of the tokens from the range that the series has. A series of which no two rates
   were compared counts as `ONE_RATE` further away.
3. Of its number of tokens nearest to the run's the recipe (schedule, warmup, starting values) with
   the lowest loss; of a schedule that was asked for, where there is one.
4. Of that recipe the best rate at each number of tokens: of those tried the one with the lowest
   loss, or, where rates on both sides of it were tried, the lowest point of the parabola through
   the three over log rate. Losses are compared on the seeds that all have. Where only one rate was
   tried nothing is known of the best: such a number of tokens counts only where there is no other.
   A rate with which a run diverged counts as tried, but it is never chosen, nor is what a parabola
   through it would say.
5. Between two numbers of tokens a straight line, log rate over log tokens; beyond the first and
   the last the rate is held.
6. A wider model than the measured one gets a lower rate, by the ratio of the widths to the power of
   `FALL`: so the best rates of widths 64, 128 and 256 fall at `nano` (docs/results/width.md). A
   narrower one keeps the rate, since one that is too low costs less than one that is too high.

The algorithm is not chosen; where another one ended lower in such runs, that is said.

alpha and GPT's deviation follow depth and width by `settings.unit`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spherelm.config import RunConfig
from spherelm.config_io import flatten, override, to_dict
from spherelm.errors import UserError, shortened
from spherelm.measured.basis import Basis, Better, Optimum, lines
from spherelm.measured.settings import (
    CHOSEN,
    OF_KINDS,
    RATES,
    Setting,
    Size,
    kind_of,
    measured,
    unit,
)

ONE_RATE = 2.0
"""Doublings: as far as 1k is from 4k context."""
BY_CHANCE = 0.05
"""What two runs of the study may differ by that have nothing but their seeds between them."""
FALL = {"muon": 0.75}
"""By algorithm, the power of the width with which the best rate falls; 1 for the others. Measured
from width 64 to 256: 1.1 (nGPT) and 1.3 (GPT) with AdamW, 0.8 and 0.7 with Muon."""
TIED = "model.tie_embeddings"
LARGEST_ALPHA = 0.5
"""Beyond it a block's output would count more than the state that it updates."""


@dataclass(frozen=True)
class Recommendation:
    """A run with the values that our measurements recommend."""

    run: RunConfig
    chosen: dict[str, Any]
    """The fields that were chosen, by dotted names."""
    basis: Basis

    @property
    def lines(self) -> tuple[str, ...]:
        """What was chosen, from what, and what would be better, for people to read."""
        return lines(self.run, self.chosen, self.basis)


def recommend(
    run: RunConfig, given: Collection[str] = (), settings: Sequence[Setting] | None = None
) -> Recommendation:
    """`run` with the rate, schedule and starting values that were best in the nearest runs.

    Fields whose dotted names are in `given` stay as they are. The rule is at the head of
    `spherelm.measured.recommend`.
    """
    if not isinstance(run, RunConfig):
        raise UserError(f"give a spherelm.RunConfig, not {shortened(run)}")
    settings = measured() if settings is None else settings
    kind = _nearest_kind(_ended(settings), run)
    series = _nearest_series([s for s in settings if s.kind == kind], run)
    asked = run.optim.schedule if "optim.schedule" in given else None
    best = _best_recipe(series, run.tokens, asked)
    optima = _optima([s for s in series if s.recipe == best.recipe])
    around = _around(optima, run.tokens)
    lr, ratio = _between(around, run.tokens)
    fall = FALL.get(run.optim.algorithm, 1.0)
    by_width = min(1.0, best.size.d_model / _width(run)) ** fall
    lr = _digits(lr * by_width)
    if "optim.lr" in given:
        lr = run.optim.lr
    with_rate = override(run, {"optim.lr": lr, "optim.warmup_steps": 0})
    # Rates of their own that nobody has named belong to another `optim.lr`.
    values: dict[str, Any] = dict.fromkeys((*RATES, *OF_KINDS))
    values |= {name: _absolute(name, value, with_rate) for name, value in best.recipe}
    values["optim.lr"] = lr
    if run.optim.algorithm == "muon" and ratio != 1:
        values["optim.muon_lr"] = _digits(lr * ratio)
    unlike = _differing(kind, kind_of(run))
    if TIED in unlike:  # the tied matrix is both: what was measured of one of two is not of it
        values |= dict.fromkeys(("optim.input_lr", "optim.output_lr"))
    fields = {name: values[name] for name in CHOSEN if name in values and name not in given}
    basis = Basis(
        best.page,
        best.size,
        around,
        unlike,
        dict(best.recipe)["optim.schedule"],
        1.0 if "optim.lr" in given else by_width,
        None if "optim.algorithm" in given else _better(settings, best),
    )
    return Recommendation(override(run, fields), fields, basis)


def taken_over(own: RunConfig, given: Collection[str]) -> dict[str, Any]:
    """The chosen fields of a run that is gone on with: they stay as they were."""
    fields = dict(flatten(to_dict(own)))
    return {name: fields.get(name) for name in CHOSEN if name not in given}


# --- which settings ------------------------------------------------------------------------------


def _ended(settings: Iterable[Setting]) -> list[Setting]:
    """Those of which no run diverged: what can be chosen."""
    return [setting for setting in settings if not setting.diverged]


def _nearest_kind(settings: Iterable[Setting], run: RunConfig) -> tuple[tuple[str, Any], ...]:
    wanted = kind_of(run)

    def distance(kind: tuple[tuple[str, Any], ...]) -> tuple[bool, int, bool, int, str]:
        unlike = _differing(kind, wanted)
        # Last, of two other algorithms the plainer: Muon has fields that AdamW has not.
        another = "optim.algorithm" in unlike, len(set(kind) ^ set(wanted))
        return "model.arch" in unlike, len(unlike), *another, str(kind)

    return min({s.kind for s in settings}, key=distance)


def _differing(a: Iterable[tuple[str, Any]], b: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """The names that do not have the same value in both."""
    return tuple(sorted({name for name, _ in set(a) ^ set(b)}))


def _nearest_series(settings: Sequence[Setting], run: RunConfig) -> list[Setting]:
    wanted = Size.of(run)

    def distance(series: Sequence[Setting]) -> tuple[float, bool, Size]:
        size, budgets = series[0].size, [s.tokens for s in _ended(series)]
        pairs = (
            (size.parameters, wanted.parameters),
            (size.context, wanted.context),
            (size.tokens_per_step, wanted.tokens_per_step),
            (min(max(budgets), max(min(budgets), run.tokens)), run.tokens),
        )
        far = sum(abs(math.log2(a / b)) for a, b in pairs)
        alone = not any(len(optimum.tried) > 1 for optimum in _found(series))
        return round(far + ONE_RATE * alone, 6), alone, size

    keys = {(s.page, s.size) for s in _ended(settings)}
    return min(([s for s in settings if (s.page, s.size) == key] for key in keys), key=distance)


def _best_recipe(series: Sequence[Setting], tokens: int, schedule: str | None) -> Setting:
    """The best setting at the nearest number of tokens."""
    asked = [s for s in series if dict(s.recipe)["optim.schedule"] == schedule]
    series = _ended(asked) or _ended(series)
    nearest = min((s.tokens for s in series), key=lambda t: (abs(math.log(t / tokens)), -t))
    losses = compared([s for s in series if s.tokens == nearest])
    return min(losses, key=lambda setting: (losses[setting], setting.rates))


def compared(settings: Sequence[Setting]) -> dict[Setting, float]:
    """The mean loss of each, see `means`."""
    found, _ = means([dict(s.losses) for s in settings])
    return dict(zip(settings, found, strict=True))


def means(losses: Sequence[Mapping[int, float]]) -> tuple[list[float], int]:
    """The mean of each setting's losses by seed, over the seeds that all have, or over its own if
    they share none; and the number of shared seeds."""
    shared = set.intersection(*map(set, losses))
    alike = (
        [loss for seed, loss in each.items() if seed in shared or not shared] for each in losses
    )
    return list(map(statistics.fmean, alike)), len(shared)


def _better(settings: Iterable[Setting], chosen: Setting) -> Better | None:
    """The algorithm with which runs like `chosen` ended lowest, if it is another one."""
    place = (chosen.page, chosen.size, chosen.tokens)
    alike = [
        s
        for s in _ended(settings)
        if (s.page, s.size, s.tokens) == place
        and set(_differing(s.kind, chosen.kind)) <= {"optim.algorithm"}
    ]
    losses = compared(alike)
    best = min(losses, key=lambda s: losses[s])
    below = min(loss for s, loss in losses.items() if s.kind == chosen.kind) - losses[best]
    if below <= BY_CHANCE:
        return None
    algorithm = dict(best.kind).get("optim.algorithm", RunConfig().optim.algorithm)
    return Better(algorithm, below, chosen.tokens)


# --- which rate ----------------------------------------------------------------------------------


def _optima(settings: Sequence[Setting]) -> list[Optimum]:
    """The best rate at each number of tokens, of one recipe; where several were tried, if any."""
    found = sorted(_found(settings), key=lambda o: o.tokens)
    return [o for o in found if len(o.tried) > 1] or found


def _found(settings: Iterable[Setting]) -> list[Optimum]:
    """The best rate for each recipe and number of tokens of which a run has ended."""
    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in settings:
        groups.setdefault((setting.tokens, setting.recipe), []).append(setting)
    return [_optimum(group) for group in groups.values() if _ended(group)]


def _optimum(settings: Sequence[Setting]) -> Optimum:
    """Of the settings of one recipe and number of tokens."""
    failed = [s for s in settings if s.diverged]
    losses = compared(_ended(settings)) | dict.fromkeys(failed, math.inf)
    best = min(losses, key=lambda s: (losses[s], s.rates))
    lr = lowest([(s.lr, loss) for s, loss in losses.items() if s.muon_ratio == best.muon_ratio])
    ratio = lowest([(s.muon_ratio, loss) for s, loss in losses.items() if s.lr == best.lr])
    tried, diverged = (tuple(sorted({s.rates for s in group})) for group in (settings, failed))
    return Optimum(best.tokens, lr, ratio, tried, diverged)


def lowest(points: Iterable[tuple[float, float]]) -> float:
    """Where a loss is lowest, of (rate, loss): the best rate, or the lowest point of the parabola
    over log rate through it and its neighbours, if it has one on either side and both are finite.

    That point is never further than half the way to a neighbour: the parabola's slope is that of
    the chord there, which rises on one side and falls on the other.
    """
    points = sorted(points)
    i = min(range(len(points)), key=lambda i: points[i][1])
    around = points[max(0, i - 1) : i + 2]
    if len(around) < 3 or any(math.isinf(loss) for _, loss in around):
        return points[i][0]
    (a, fa), (b, fb), (c, fc) = ((math.log(x), y) for x, y in around)
    left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)  # below 0, and not below
    zero = -left / (right - left)  # of the slope, from the middle of a and b to that of b and c
    return math.exp((a + b) / 2 + zero * (c - a) / 2)


def _around(optima: Sequence[Optimum], tokens: int) -> tuple[Optimum, ...]:
    """The two with `tokens` between them, or the one that is at it or nearest to it."""
    for before, after in itertools.pairwise(optima):
        if before.tokens < tokens < after.tokens:
            return before, after
    return (min(optima, key=lambda o: abs(math.log(o.tokens / tokens))),)


def _between(around: Sequence[Optimum], tokens: int) -> tuple[float, float]:
    """Rate and Muon's multiple at `tokens`, on the straight line between two in logarithms."""
    first, last = around[0], around[-1]
    share = 0.0
    if first is not last:
        share = math.log(tokens / first.tokens) / math.log(last.tokens / first.tokens)
    lr = first.lr ** (1 - share) * last.lr**share
    ratio = first.muon_ratio ** (1 - share) * last.muon_ratio**share
    return _digits(lr), _digits(ratio)


def _width(run: RunConfig) -> int:
    """The width that `optim.lr` is a rate of: nuGPT's rates follow the width from a base's."""
    base = run.optim.base_d_model if run.optim.lr_groups == "nugpt" else None
    return base or run.model.d_model


def _absolute(name: str, value: Any, run: RunConfig) -> Any:
    """A field of a recipe as it is in `run`."""
    if isinstance(value, str):
        return value
    if name == "optim.warmup_steps":
        return min(round(value * run.train.steps), run.train.steps - 1)
    own = _digits(value * unit(name, run))
    return min(own, LARGEST_ALPHA) if name.startswith("model.alpha") else own


def _digits(value: float) -> float:
    """Three of them: more were not measured."""
    return float(f"{value:.3g}")
