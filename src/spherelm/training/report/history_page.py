"""`report.html`: finished and running runs on one self-contained page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from spherelm.config_io import flatten, to_dict, to_toml
from spherelm.console import format_count, format_seconds
from spherelm.model.flops import count_parameters
from spherelm.plots.page import Cell, Named, Part, document, pictures, sample, table
from spherelm.training.report.history import MOST_POINTS, RECENT, History, are_of_one_tokenizer
from spherelm.training.report.history_charts import (
    FACTORS,
    Shown,
    appearances,
    factor_charts,
    loss_charts,
    optimizer_charts,
)
from spherelm.training.report.samples import Sample

Samples = Mapping[str, Sample | str]
"""By run folder, the sample it wrote, or why there is none."""


def render(runs: Sequence[History], samples: Samples | None = None) -> str:
    """The page as HTML."""
    shown = appearances(runs)
    names = [each.label for each in shown]
    title = shown[0].run.folder if len(shown) == 1 else f"{len(shown)} runs"
    if len(shown) in (2, 3):
        title = f"{', '.join(names[:-1])} and {names[-1]}"
    state = f'<p class="quiet">{escape(_state(shown))}</p>'
    return document(f"Report: {title}", title, state, _parts(shown, samples or {}))


def _parts(shown: Sequence[Shown], samples: Samples) -> Iterator[Part]:
    yield Part("numbers", "In numbers", _numbers(shown))
    for name, title, charts in (
        ("losses", "Loss", loss_charts(shown)),
        ("optimizer", "Learning rate and gradient", optimizer_charts(shown)),
        ("factors", "Eigen learning rates and scaling factors", factor_charts(shown)),
    ):
        if charts:
            content = pictures((chart, _caption(chart.name) + chart.cut) for chart in charts)
            content += _unlike(shown) if name == "losses" else ""
            yield Part(name, title, content, "Factors" if name == "factors" else None)
    if samples:
        title = "What it writes" if len(shown) == 1 else "What they write"
        yield Part("samples", title, "\n".join(_samples(shown, samples)), "Samples")
    if len(shown) > 1:
        title = "What differs in their configurations"
        yield Part("differences", title, _differences(shown), "Differences")
    else:
        config = f"<pre>{escape(to_toml(shown[0].run.config))}</pre>"
        yield Part("configuration", "Configuration", config)
    title = "Where it comes from" if len(shown) == 1 else "Where they come from"
    yield Part("origins", title, "\n".join(_origins(shown)), "Origins")


def _state(shown: Sequence[Shown]) -> str:
    going = [each for each in shown if not each.run.finished]
    if not going:
        return "All steps have been taken."
    if len(going) > 3:  # the table lists each of them
        return f"{len(going)} of {len(shown)} runs are not at the end."
    return f"Not at the end: {', '.join(map(_where, going))}."


def _where(each: Shown) -> str:
    """How far a run has come, and how long the rest takes at its last speed."""
    step, steps, speed = each.run.step, each.run.config.train.steps, each.run.tokens_per_second
    at = f"{each.label} at step {step:,} of {steps:,}"
    if speed is None:
        return at
    left = format_seconds((steps - step) * each.run.config.tokens_per_step / speed)
    return f"{at}, {left} of steps to go"


def _caption(name: str) -> str:
    if name.startswith("val_loss"):
        return "On the validation set, at each evaluation."
    if name == "s_z":
        return "The mean over all tokens of the vocabulary, at each evaluation."
    if name in FACTORS:
        return (
            "The mean over all elements and layers, at each evaluation; shaded: from the layer "
            "with the lowest mean to that with the highest."
        )
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
"""The columns of the table of runs, by their heads."""
ACROSS_TOKENIZERS: dict[str, Callable[[History], str]] = {
    "bits per byte": lambda run: _number(_validation(run, "val_bits_per_byte")[-1:]),
}
"""Further columns if losses are not comparable."""


def _numbers(shown: Sequence[Shown]) -> str:
    unlike = _unlike(shown)
    columns = COLUMNS | ACROSS_TOKENIZERS if unlike else COLUMNS
    rows: list[Sequence[Cell]] = [
        (Named(each.label, each.role), *(tell(each.run) for tell in columns.values()))
        for each in shown
    ]
    return table(["", *columns], rows, stacked=True) + (
        f'\n<p class="quiet">Training loss and speed are those of the last {RECENT} steps at most; '
        f"time is that of training steps, without evaluations and checkpoints.</p>{unlike}"
    )


def _unlike(shown: Sequence[Shown]) -> str:
    """A note that losses are not comparable; empty if they are."""
    if are_of_one_tokenizer([each.run for each in shown]):
        return ""
    return (
        '\n<p class="quiet">Losses are per token, and these runs have different tokenizers: '
        "compare the bits per byte of the last validation.</p>"
    )


def _validation(run: History, name: str = "val_loss") -> list[float]:
    return [line[name] for line in run.metrics if line.get(name) is not None]


def _number(values: Sequence[float]) -> str:
    """The first of `values`, if there is one."""
    return f"{values[0]:.4f}" if values else ""


def _samples(shown: Sequence[Shown], samples: Samples) -> Iterator[str]:
    yield (
        '<p class="quiet">The newest checkpoint goes on with the prompt in grey, the beginning of '
        "its validation text, or begins a new document if that is gone.</p>"
    )
    yield '<div class="pictures">'
    for each in shown:
        written = samples.get(each.run.folder, "no sample was asked for")
        text = (
            sample(written.prompt, written.text)
            if isinstance(written, Sample)
            else f'<p class="quiet">{escape(written)}</p>'
        )
        yield f'<div><h3 class="{each.role}-name">{escape(each.label)}</h3>\n{text}</div>'
    yield "</div>"


def _differences(shown: Sequence[Shown]) -> str:
    configs = [dict(flatten(to_dict(each.run.config))) for each in shown]
    fields = dict.fromkeys(name for config in configs for name in config)
    differ = [name for name in fields if len({str(c.get(name)) for c in configs}) > 1]
    if not differ:
        return "<p>Nothing: their configurations are the same.</p>"
    return table(
        ["", *(Named(each.label, each.role) for each in shown)],
        [(name, *(_value(config.get(name)) for config in configs)) for name in differ],
        stacked=True,
    )


def _value(value: object) -> str:
    """A field's value as a person would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _origins(shown: Sequence[Shown]) -> Iterator[str]:
    for each in shown:
        env = each.run.environment
        yield f'<p><strong class="{each.role}-name">{escape(each.label)}</strong> '
        yield f"<code>{escape(each.run.folder)}</code></p>"
        command = env.get("command")
        if isinstance(command, list):
            yield f"<p><code>{escape(shlex.join(map(str, command)))}</code></p>"
            threads = env.get("cpu_threads")
            machine = env.get("gpu") or f"{threads} CPU thread" + "s" * (threads != 1)
            about = f"spherelm {env.get('spherelm')}, torch {env.get('torch')}, {machine}"
            yield f'<p class="quiet">{escape(about)}; {escape(str(env.get("started")))}</p>'
        origin = env.get("init_from")
        if isinstance(origin, dict):
            folder = escape(str(origin.get("folder")))
            yield f'<p class="quiet">It began with the weights of {folder}.</p>'
