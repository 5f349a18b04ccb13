"""Tables and figures of the study, from the records alone.

The tables stand in a page between two marks and are written there again; all around them is
written by people.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.errors import UserError
from spherelm.measured.settings import recipe_of
from spherelm.paper import fit, store
from spherelm.paper.scaling import settings, times
from spherelm.paper.scaling.grid import ARMS, SMALL, TUNED, Point
from spherelm.paper.scaling.times import StepTime
from spherelm.paper.store import Record
from spherelm.plots import markdown, svg
from spherelm.plots.chart import Axis, Chart, Role, Series

PAGE = "headline.md"
BEGIN, END = "<!-- scaling: begin -->", "<!-- scaling: end -->"


@dataclass(frozen=True)
class Best:
    """The best setting of an arm at a budget: the final loss of each of its seeds."""

    arm: str
    size: str
    context: int
    tokens: int
    runs: tuple[Record, ...]

    @property
    def losses(self) -> list[float]:
        return [run.loss for run in self.runs]

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses)


def arm_of(run: RunConfig) -> str:
    """The arm that a configuration belongs to."""
    fields = dict(flatten(to_dict(run)))
    fits = [
        name
        for name, arm in ARMS.items()
        if arm.ngpt == (run.model.arch == "ngpt")
        and all(fields.get(key) == value for key, value in arm.fields.items())
    ]
    return max(fits, key=lambda name: len(ARMS[name].fields))


def size_of(run: RunConfig) -> str:
    """The name of a run's model in `SHAPES`."""
    return f"{run.model.n_layers}x{run.model.d_model}"


def _settings(bests: Sequence[Best]) -> list[tuple[str, int]]:
    """Sizes and contexts that were measured, the study's own size first."""
    return sorted({(b.size, b.context) for b in bests}, key=lambda s: (s[0] != SMALL, *s))


def _best(settings: Sequence[Sequence[Record]]) -> Sequence[Record]:
    """Of settings with several seeds each the best one, on the seeds that all of them have: one
    lucky run must not win against the mean of three."""
    shared = set.intersection(*({r.config.train.seed for r in seeds} for seeds in settings))

    def loss(seeds: Sequence[Record]) -> float:
        alike = [r.loss for r in seeds if r.config.train.seed in shared]
        return statistics.fmean(alike or [r.loss for r in seeds])

    return min(settings, key=loss)


def best_settings(records: Sequence[Record]) -> list[Best]:
    """For each arm that is compared, context and budget, its best setting with all seeds of it."""
    settings: dict[tuple[str, str, int, int], dict[str, list[Record]]] = {}
    for record in records:
        arm = arm_of(record.config)
        if record.finished and ARMS[arm].compared:
            model = record.config.model
            key = (arm, size_of(record.config), model.context, record.tokens)
            setting = record.id.rpartition("-s")[0]
            settings.setdefault(key, defaultdict(list))[setting].append(record)
    found = []
    for key, runs in settings.items():
        found.append(Best(*key, tuple(_best(list(runs.values())))))
    order = list(ARMS)
    return sorted(found, key=lambda b: (order.index(b.arm), b.size, b.context, b.tokens))


# --- tables --------------------------------------------------------------------------------------


def tables(records: Sequence[Record], steps: Sequence[StepTime] = ()) -> str:
    """All tables of the page, as Markdown."""
    parts = [
        "Every run, best first within its context and budget:",
        markdown.table(_RUN, _run_rows(records)),
        "Tokens that a baseline needs for the loss at which another arm ends, for every baseline\n"
        "with two budgets or more; in seconds: times the baseline's time for a token over the\n"
        "arm's, where both were timed:",
        markdown.table(_FACTOR, _factor_rows(best_settings(records), steps)),
    ]
    if steps:
        made_with = dict.fromkeys(f"{s.device}, torch {s.torch}, {s.date}" for s in steps)
        parts += [
            "A training step, nothing else on the device, the arms by turns: the median of 20 and\n"
            f"their quartiles ({'; '.join(made_with)}):",
            markdown.table(_STEP, _step_rows(steps)),
        ]
    return "\n\n".join(parts)


_NEEDED = ("it needs", "factor", "90 %", "in seconds")
_RUN = ("model", "context", "tokens", "arm", "schedule", "rate", "seed", "final loss", "steps, s")
_FACTOR = ("model", "context", "baseline", "arm", "tokens", "loss", "seeds", *_NEEDED)
_STEP = ("model", "context", "arm", "tokens", "ms", "quartiles", "tokens/s", "/ GPT")


def _run_rows(records: Sequence[Record]) -> Iterator[list[str]]:
    def rank(r: Record) -> tuple[Any, ...]:
        size = size_of(r.config)
        end = (r.tokens, not r.finished, r.curve[-1:][0][1:])
        return size != SMALL, size, r.config.model.context, *end

    for record in sorted(records, key=rank):
        run = record.config
        loss = f"{record.loss:.3f}" if record.finished else "did not finish"
        yield [
            size_of(run),
            f"{run.model.context // 1024}k",
            f"{record.tokens / 1e6:.0f}M",
            _title(run),
            _schedule(run),
            _rate(run),
            str(run.train.seed),
            loss,
            f"{record.seconds:.0f}",
        ]


def _title(run: RunConfig) -> str:
    """The arm, and what a run has in place of the arm's own values."""
    arm = arm_of(run)
    usual, own = dict(recipe_of(Point(arm, 92).config())), dict(recipe_of(run))
    changed = [name for name, field in TUNED.items() if own.get(field) != usual.get(field)]
    return ", ".join((ARMS[arm].title, *(f"{name} {own[TUNED[name]]:g}" for name in changed)))


def _schedule(run: RunConfig) -> str:
    rho = f", ρ {run.optim.log_rho:g}" if run.optim.schedule == "log" else ""
    return f"{run.optim.schedule}{rho}"


def _rate(run: RunConfig) -> str:
    optim = run.optim
    if optim.algorithm != "muon":
        return f"{optim.lr:g}"
    muon = optim.lr if optim.muon_lr is None else optim.muon_lr
    return f"{optim.lr:g}, Muon {muon:g}"


def _factor_rows(bests: Sequence[Best], steps: Sequence[StepTime]) -> Iterator[list[str]]:
    for size, context in _settings(bests):
        here = [b for b in bests if (b.size, b.context) == (size, context)]
        for name in (name for name, arm in ARMS.items() if not arm.ngpt):
            baseline = {b.tokens: b.losses for b in here if b.arm == name}
            for b in here if len(baseline) > 1 else ():
                if b.arm != name:
                    quicker = times.ratio(steps, (name, size, context), (b.arm, size, context))
                    yield [
                        size,
                        f"{context // 1024}k",
                        ARMS[name].title,
                        ARMS[b.arm].title,
                        f"{b.tokens / 1e6:.0f}M",
                        f"{b.loss:.3f}",
                        str(len(b.runs)),
                        *_factor(baseline, b, quicker),
                    ]


def _factor(baseline: fit.Losses, best: Best, quicker: float | None) -> tuple[str, str, str, str]:
    """Tokens that are needed, the factor, its interval, and the factor in seconds: a token takes
    the baseline `quicker` times as long."""
    found = fit.factor(baseline, best.tokens, best.losses)
    if found is None:
        most = max(baseline) / best.tokens
        seconds = "-" if quicker is None else f"over {most * quicker:.2f}"
        return f"over {max(baseline) / 1e6:.0f}M, not measured", f"over {most:.2f}", "-", seconds
    beyond = " (extrapolated)" if found.extrapolated else ""
    interval = _interval(found, 1) or "one seed"
    seconds = "-"
    if quicker is not None:
        within = _interval(found, quicker)
        seconds = f"{found.value * quicker:.2f}" + (f" ({within})" if within else "")
    return f"{found.needed / 1e6:.0f}M{beyond}", f"{found.value:.2f}", interval, seconds


def _interval(found: fit.Factor, times: float) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{found.low * times:.2f} to {found.high * times:.2f}"


def _step_rows(steps: Sequence[StepTime]) -> Iterator[list[str]]:
    for step in steps:
        longer = times.ratio(steps, step.model, ("gpt", step.size, step.context))
        yield [
            step.size,
            f"{step.context // 1024}k",
            ARMS[step.arm].title,
            f"{step.tokens:,}",
            f"{step.median_ms:.1f}",
            f"{step.low_ms:.1f} to {step.high_ms:.1f}",
            f"{step.tokens_per_s:,}",
            "-" if longer is None else f"{longer:.3f}",
        ]


# --- figures -------------------------------------------------------------------------------------


_ROLES: tuple[Role, ...] = ("gpt", "third", "fifth", "sixth", "ngpt", "fourth")
"""Colours of the arms, in their order; the name at its end tells a curve from another."""


def figures(records: Sequence[Record]) -> list[Chart]:
    """For each model and context: final loss over tokens of every arm, and the curves of the last
    budget."""
    bests = best_settings(records)
    found = []
    for size, context in _settings(bests):
        here = [b for b in bests if (b.size, b.context) == (size, context)]
        what = f"{context // 1024}k context"
        name = f"{context // 1024}k"
        if size != SMALL:
            what, name = f"{size}, {what}", f"{size}-{name}"
        ends = {b.arm: [(e.tokens / 1e6, e.loss) for e in here if e.arm == b.arm] for b in here}
        budgets = sorted({b.tokens / 1e6 for b in here})
        axis = Axis("million tokens", log=True, ticks=[(b, f"{b:.0f}") for b in budgets])
        title = f"Loss at the end of finished runs, {what}"
        found.append(_chart(f"scaling-{name}", title, axis, ends))
        longest = max(b.tokens for b in here)
        curves = {b.arm: _late(b.runs[0]) for b in here if b.tokens == longest}
        title = f"The runs of {longest / 1e6:.0f}M tokens, {what}"
        found.append(
            _chart(f"curves-{name}", title, Axis("million tokens", from_zero=True), curves)
        )
    return found


def _chart(name: str, title: str, x: Axis, losses: dict[str, list[tuple[float, float]]]) -> Chart:
    arms = list(ARMS)
    series = [
        Series(
            ARMS[arm].title,
            _ROLES[arms.index(arm) % len(_ROLES)],
            points,
            square=not ARMS[arm].ngpt,
        )
        for arm, points in losses.items()
    ]
    ends = "; ".join(f"{line.label} {line.points[-1][1]:.3f}" for line in series)
    described = f"Validation loss at the ends: {ends}."
    return Chart(name, title, described, x, Axis("validation loss"), series)


def _late(run: Record) -> list[tuple[float, float]]:
    """The curve after a fifth of the run: what comes before would press the rest flat."""
    return [(tokens / 1e6, loss) for tokens, loss in run.curve if tokens > 0.2 * run.tokens]


# --- the page ------------------------------------------------------------------------------------


def redraw(results: Path) -> list[Path]:
    """Write the tables and figures in the folder `results` again from its data.

    Where it is the repository's own, also what `spherelm train` chooses from.
    """
    records = store.read(results / "data" / "scaling")
    if not any(record.finished for record in records):
        raise UserError(f"{results}/data/scaling holds no finished run to draw")
    page = results / PAGE
    text = page.read_text() if page.is_file() else f"# The study\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{page} has no lines {BEGIN} and {END} between which to write")
    durable.write_text(
        page, f"{before}{BEGIN}\n\n{tables(records, times.read(results))}\n\n{END}{after}"
    )
    drawn = {results / f"{c.name}.svg": svg.draw_file(c) for c in figures(records)}
    for path, picture in drawn.items():
        durable.write_text(path, picture)
    return [page, *drawn, *settings.update(results)]
