"""`report.html`: how runs went, or go, on one page that needs nothing from anywhere else."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from html import escape

from spherelm.config_io import flatten, to_dict, to_toml
from spherelm.model.flops import count_parameters
from spherelm.plots import svg
from spherelm.plots.chart import COLOURS
from spherelm.plots.page import CLOSING, card, figure, opening
from spherelm.training.report.history import MOST_POINTS, RECENT, History
from spherelm.training.report.history_charts import (
    FACTORS,
    Shown,
    appearances,
    factor_charts,
    loss_charts,
    optimizer_charts,
)
from spherelm.training.report.reporter import format_count, format_seconds

STYLE = "\n".join(f".{role}-name {{ color: var(--{role}); }}" for role in COLOURS)


def render(runs: Sequence[History]) -> str:
    """The page as HTML."""
    return "\n".join(_page(appearances(runs))) + "\n"


def _page(shown: Sequence[Shown]) -> Iterator[str]:
    title = shown[0].run.folder if len(shown) == 1 else f"{len(shown)} runs"
    yield opening(f"Report: {title}", STYLE)
    yield f"<header>\n<h1>{escape(title)}</h1>\n"
    yield f'<p class="quiet">{escape(_state(shown))}</p>\n</header>'
    yield card("In numbers", "\n".join(_numbers(shown)))
    charts = [*loss_charts(shown), *optimizer_charts(shown), *factor_charts(shown)]
    yield '<div class="pair">'
    for chart in charts:
        yield card(chart.title, figure(svg.draw(chart), _caption(chart.name)))
    yield "</div>"
    if len(shown) > 1:
        yield card("What differs in their configurations", "\n".join(_differences(shown)))
    else:
        config = escape(to_toml(shown[0].run.config))
        yield card("Configuration", f"<pre>{config}</pre>")
    yield card("Where it comes from", "\n".join(_origins(shown)))
    yield CLOSING


def _state(shown: Sequence[Shown]) -> str:
    going = [each for each in shown if not each.run.finished]
    if not going:
        return "All steps have been taken."
    steps = ", ".join(
        f"{each.label} at step {each.run.step:,} of {each.run.config.train.steps:,}"
        for each in going
    )
    return f"Not at the end: {steps}."


def _caption(name: str) -> str:
    if name.startswith("val_loss"):
        return "On the validation set, at each evaluation."
    if name in FACTORS:
        return "The mean over all elements and layers, at each evaluation."
    return f"Means over equal parts of a run, {MOST_POINTS} at most."


COLUMNS: dict[str, Callable[[History], str]] = {
    "parameters": lambda run: format_count(count_parameters(run.config.model).total),
    "steps": lambda run: f"{run.step:,} of {run.config.train.steps:,}",
    "tokens": lambda run: format_count(run.tokens),
    "training loss": lambda run: _number([] if run.loss is None else [run.loss]),
    "validation loss": lambda run: _number(_validation(run)[-1:]),
    "its best": lambda run: _number(sorted(_validation(run))[:1]),
    "time": lambda run: format_seconds(max(run.clock.values())) if run.clock else "",
    "tokens/s": lambda run: "" if (s := run.tokens_per_second) is None else format_count(s),
}
"""What is said of each run, by the head of its column."""


def _numbers(shown: Sequence[Shown]) -> Iterator[str]:
    yield '<div class="scroll"><table>\n<thead><tr><th scope="col"></th>'
    yield "".join(f'<th scope="col">{what}</th>' for what in COLUMNS)
    yield "</tr></thead>\n<tbody>"
    for each in shown:
        cells = "".join(f"<td>{escape(tell(each.run))}</td>" for tell in COLUMNS.values())
        yield f'<tr><th scope="row" class="{each.role}-name">{escape(each.label)}</th>{cells}</tr>'
    yield "</tbody>\n</table></div>"
    yield (
        f'<p class="quiet">Training loss and speed are those of the last {RECENT} steps; time is '
        "that of training steps, without evaluations and checkpoints.</p>"
    )


def _validation(run: History) -> list[float]:
    return [y for _, y in run.curve("val_loss", lambda line: line["step"], most=len(run.metrics))]


def _number(values: Sequence[float]) -> str:
    """The first of `values`, if there is one."""
    return f"{values[0]:.4f}" if values else ""


def _differences(shown: Sequence[Shown]) -> Iterator[str]:
    configs = [dict(flatten(to_dict(each.run.config))) for each in shown]
    fields = dict.fromkeys(name for config in configs for name in config)
    differ = [name for name in fields if len({str(c.get(name)) for c in configs}) > 1]
    if not differ:
        yield "<p>Nothing: their configurations are the same.</p>"
        return
    yield '<div class="scroll"><table>\n<thead><tr><th scope="col"></th>'
    for each in shown:
        yield f'<th scope="col" class="{each.role}-name">{escape(each.label)}</th>'
    yield "</tr></thead>\n<tbody>"
    for name in differ:
        cells = "".join(f"<td>{escape(_value(config.get(name)))}</td>" for config in configs)
        yield f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    yield "</tbody>\n</table></div>"


def _value(value: object) -> str:
    """A field's value as a person would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _origins(shown: Sequence[Shown]) -> Iterator[str]:
    for each in shown:
        env = each.run.environment
        yield f'<p><strong class="{each.role}-name">{escape(each.label)}</strong> '
        yield f"{escape(each.run.folder)}</p>"
        command = env.get("command")
        if isinstance(command, list):
            yield f"<p><code>{escape(shlex.join(map(str, command)))}</code></p>"
            machine = env.get("gpu") or f"{env.get('cpu_threads')} CPU threads"
            about = f"spherelm {env.get('spherelm')}, torch {env.get('torch')}, {machine}"
            yield f'<p class="quiet">{escape(about)}; {escape(str(env.get("started")))}</p>'
        origin = env.get("init_from")
        if isinstance(origin, dict):
            folder = escape(str(origin.get("folder")))
            yield f'<p class="quiet">It began with the weights of {folder}.</p>'
