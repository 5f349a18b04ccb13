"""The charts of a comparison as PNG files, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.plots.charts import Chart, limits

COLOURS = {"gpt": "#b45309", "ngpt": "#1d4ed8", "other": "#7c3aed"}
MARKERS = {"gpt": "s", "ngpt": "o", "other": "o"}


def write_figures(charts: Sequence[Chart], folder: Path) -> list[Path] | None:
    """Write each chart as NAME.png; None, and nothing written, where there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    paths = []
    for chart in charts:
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure.add_subplot(), chart)
        path = folder / f"{chart.name}.png"
        with durable.written(path) as file:
            figure.savefig(file, dpi=160, format="png", metadata={"Title": chart.title})
        paths.append(path)
    return paths


def _draw(axes: Any, chart: Chart) -> None:
    for line in chart.lines:
        xs, ys = zip(*line.points, strict=True)
        axes.plot(
            xs, ys, color=COLOURS[line.role], marker=MARKERS[line.role], ms=4, label=line.label
        )
    left, right, bottom, top = limits(chart)
    margin = 0.02 * (right - left)
    axes.set_xlim(left - (margin if chart.whole_x else 0), right + margin)
    axes.set_ylim(bottom, top)
    if chart.whole_x:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if chart.span is not None:
        span = chart.span
        path = [span.right, span.left, span.left], [span.y, span.y, bottom]
        axes.plot(*path, color="black", lw=1.2, ls=(0, (4, 3)))
        axes.plot(span.left, span.y, "o", color="black", ms=6)
        axes.annotate(
            span.text,
            (span.left, span.y),
            (-8, -4) if span.text_left else (8, 6),
            textcoords="offset points",
            ha="right" if span.text_left else "left",
            va="top" if span.text_left else "bottom",
            weight="bold",
        )
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
