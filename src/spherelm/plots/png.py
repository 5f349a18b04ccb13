"""Charts as PNG files, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.plots.chart import COLOURS, Chart

NO_MATPLOTLIB = "no PNG figures: they need matplotlib, pip install 'spherelm[plots]'"


def write(charts: Sequence[Chart], folder: Path) -> list[Path] | None:
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
    for line in chart.series:
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        marker = ("s" if line.square else "o") if line.dots else ""
        colour, style = COLOURS[line.role][0], ":" if line.dotted else "-"
        axes.plot(xs, ys, color=colour, marker=marker, ms=4, label=line.label, ls=style)
        if line.band:
            axes.fill_between(*zip(*line.band, strict=True), color=colour, alpha=0.16, lw=0)
    x, y = chart.x_range, chart.y_range
    if chart.span is not None:
        span = chart.span
        path = [span.right, span.left, span.left], [span.y, span.y, y.low]
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
    for axis, shown, name in ((axes.xaxis, x, "x"), (axes.yaxis, y, "y")):
        if shown.log:
            getattr(axes, f"set_{name}scale")("log")
        values, labels = zip(*shown.ticks, strict=True) if shown.ticks else ((), ())
        axis.set_ticks(values, labels)
        axis.set_ticks([], minor=True)  # a logarithmic one would write 2 × 10² beside ours
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    axes.set(title=chart.title, xlabel=chart.x.label, ylabel=chart.y.label)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title=chart.legend)
