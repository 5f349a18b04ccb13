"""Charts as PNG files, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.plots.chart import COLOURS, Chart, Span
from spherelm.plots.place import Line, free_place

NO_MATPLOTLIB = "no PNG figures: they need matplotlib, pip install 'spherelm[plots]'"


def write(charts: Sequence[Chart], folder: Path) -> list[Path] | None:
    """Write each chart as NAME.png; without matplotlib, write nothing and return None."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    paths = []
    for chart in charts:
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, chart)
        path = folder / f"{chart.name}.png"
        with durable.written(path) as file:
            figure.savefig(file, dpi=160, format="png", metadata={"Title": chart.title})
        paths.append(path)
    return paths


def draw(figure: Any, chart: Chart) -> None:
    """Draw a chart on an empty figure, with no legend or text over a curve."""
    axes = figure.add_subplot()
    for line in chart.series:
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        marker = ("s" if line.square else "o") if line.dots else ""
        colour, style = COLOURS[line.role][0], ":" if line.dotted else "-"
        inside = "white" if line.dotted else colour
        axes.plot(xs, ys, color=colour, marker=marker, ms=4, mfc=inside, label=line.label, ls=style)
        if line.band:
            axes.fill_between(*zip(*line.band, strict=True), color=colour, alpha=0.16, lw=0)
    x, y = chart.x_range, chart.y_range
    for axis, shown, name in ((axes.xaxis, x, "x"), (axes.yaxis, y, "y")):
        if shown.log:
            getattr(axes, f"set_{name}scale")("log")
        values, labels = zip(*shown.ticks, strict=True) if shown.ticks else ((), ())
        axis.set_ticks(values, labels)
        axis.set_ticks([], minor=True)  # or a logarithmic axis adds labels such as 2 × 10²
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    axes.set(title=chart.title, xlabel=chart.x.label, ylabel=chart.y.label)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if any(line.points for line in chart.series):
        columns = max(1, min(4, 72 // (8 + max(len(line.label) for line in chart.series))))
        place = {"loc": "outside lower center", "ncols": columns}
        figure.legend(frameon=False, title=chart.legend, **place)
    if chart.span is not None:
        _draw_span(figure, axes, chart, chart.span)


def _draw_span(figure: Any, axes: Any, chart: Chart, span: Span) -> None:
    """Draw the line of a span, and its text near its left end, clear of curves."""
    left, right = span.left, span.right
    path = [right, left, left], [span.y, span.y, chart.y_range.low]
    axes.plot(*path, color="black", lw=1.2, ls=(0, (4, 3)))
    axes.plot(left, span.y, "o", color="black", ms=6)
    text = axes.annotate(
        span.text, (left, span.y), (0, 0), textcoords="offset points", weight="bold"
    )
    figure.draw_without_rendering()  # computes the layout
    area, size = axes.get_window_extent(), text.get_window_extent()

    def on_paper(points: Sequence[tuple[float, float]]) -> Line:
        """In pixels, y down."""
        return [(x, -y) for x, y in axes.transData.transform(points).tolist()]

    beside = on_paper([(left, span.y)])[0]
    lines = [on_paper(line.points) for line in chart.series if line.points]
    lines.append(on_paper(list(zip(*path, strict=True))))
    inside = (area.x0, -area.y1, area.x1, -area.y0)
    corner = free_place(size.width, size.height, beside, inside, lines)
    if corner is None:  # no room inside: above the picture
        corner = (area.x0, -area.y1 - size.height)
    to_points = 72 / figure.dpi
    lower = corner[1] + size.height
    text.xyann = to_points * (corner[0] - beside[0]), to_points * (beside[1] - lower)
