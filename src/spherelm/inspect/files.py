"""The files that `spherelm inspect` writes: the page, all numbers, every picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from spherelm import durable
from spherelm.data.dataset import TokenDataset
from spherelm.inspect.insides import Insides, enough
from spherelm.inspect.page import chapters_of, render
from spherelm.plots import png, svg
from spherelm.plots.chart import Chart

PAGE, NUMBERS, ROWS = "index.html", "inspect.json", "directions.json"


def write_page(out: Path, models: Sequence[Insides], text: str) -> Path:
    """Write the page and its numbers; `text` says what the models read."""
    numbers = {"text": text, "models": [model.as_json() for model in models]}
    durable.write_json(out / NUMBERS, numbers)
    rows = [model.directions_as_json() for model in models]
    compact = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    durable.write_text(out / ROWS, compact + "\n")
    durable.write_text(out / PAGE, render(models, text))
    return out / PAGE


def write_pictures(
    folder: Path, models: Sequence[Insides], say: Callable[[str], None] = lambda line: None
) -> None:
    """Write every picture as SVG and, with matplotlib, as PNG, replacing earlier ones."""
    charts: list[Chart] = [p.chart for chapter in chapters_of(models) for p in chapter.pictures]
    say(f"writing {len(charts)} pictures")
    svg.write(charts, folder)
    if png.write(charts, folder) is None:
        say(png.NO_MATPLOTLIB)


def beginning_of(dataset: TokenDataset, tokens: int) -> str:
    """The beginning of the validation text, long enough for `tokens` tokens of any tokenizer."""
    ids = dataset.val.shards[0].tokens[: enough(tokens)].tolist()
    return dataset.tokenizer().decode(ids)
