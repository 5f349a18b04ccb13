"""What a result must have whatever it found: tables, rows, columns, units, pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from spherelm.paper.size import Size


def _grid(size: Size) -> int:
    """Panels of model and context."""
    return 3 * len(size.grid_models)


def _layers(size: Size) -> int:
    fewest = min(shape.layers for shape in size.models.values())
    return len({min(layer, fewest) for layer in (3, 4)})


def _curves(size: Size) -> int:
    """Of the selection of rates: one more at 1B and 8k."""
    return 2 * _grid(size) + ("1B" in size.grid_models)


ROWS: dict[str, dict[str, Callable[[Size], int]]] = {
    "loss-curve": {"speed-up": lambda s: 5},
    "token-budget": {"speed-up": _grid, "losses": lambda s: 4 * _grid(s)},
    "tasks": {f"tasks-{c}": lambda s: 8 * len(s.grid_models) for c in ("4k", "1k", "8k")},
    "embeddings": {"embeddings": lambda s: 4 * len(s.grid_models)},
    "condition-numbers": {"conditions": lambda s: 14 * len(s.grid_models)},
    "learned-scales": {"factors": lambda s: 6 * len(s.grid_models)},
    "step-time": {"step-time": _grid},
    "parameters": {
        "parameters": lambda s: 4,
        "stand-ins": lambda s: 4,
        "optimization": lambda s: 5,
    },
    "learning-rate": {"best": _curves, "runs": lambda s: len(s.rates) * _curves(s)},
    "layer-matrices": {"matrices": lambda s: 8 * len(s.grid_models) * _layers(s)},
    "length": {"perplexity": lambda s: 9},
    "ablation-init": {"init": lambda s: 14},
    "ablation-scalar": {"scalar": lambda s: 12, "means": lambda s: 12},
    "ablation-norm": {"norm": lambda s: 3},
    "scale-histograms": {"factors": lambda s: 6 * (3 + 2 + 3 + 4)},
}
"""Rows of each table."""
_RESULTS = {"final loss": "nats", "change of loss": "%", "average accuracy": "%"}
_TASKS = {
    **dict.fromkeys(("ARC-Easy", "HellaSwag", "WinoGrande", "WSC273", "LAMBADA"), "%"),
    "WMT14 fr-en": "BLEU",
    "average of five": "%",
    "budget": "tokens",
}
COLUMNS: dict[str, dict[str, str]] = {
    "loss-curve": {"value": ""},
    "token-budget": {"GPT's loss": "nats", "nGPT's loss": "nats", "speed-up": "×"},
    "tasks": _TASKS,
    "embeddings": {"norm, mean": "", "condition number": "", "dot product, mean": ""},
    "condition-numbers": {"median over layers": "", "median, rows normalized": ""},
    "learned-scales": {"mean": "", "spread": "std"},
    "step-time": {"GPT": "ms", "nGPT": "ms", "longer by": "%"},
    "parameters": {"layers": "", "width": "", "heads": "", "parameters": "M"},
    "learning-rate": {"learning rate": "", "final loss": "nats"},
    "layer-matrices": {"row norm, mean": "", "singular values above 1 % of the largest": "%"},
    "length": {"trained at": "tokens", "longest / trained length": "×"},
    "ablation-init": {"s_init": "", "s_scale": "", "mean after training": "", **_RESULTS},
    "ablation-scalar": {"s_qk": "", "s_u & s_ν": "", "s_z": "", "α_A & α_M": "", **_RESULTS},
    "ablation-norm": {"time per step": "s", **_RESULTS},
    "scale-histograms": {"mean": "", "spread": "std", "median": ""},
}
"""Columns that a table of the item must have, each with its unit."""
FIGURES: dict[str, Callable[[Size], int]] = {
    "loss-curve": lambda s: 1,
    "token-budget": _grid,
    "tasks": lambda s: 3 * 7,
    "embeddings": lambda s: 6 * len(s.grid_models),
    "condition-numbers": lambda s: 7 * len(s.grid_models),
    "learned-scales": lambda s: 11,
    "learning-rate": _grid,
    "layer-matrices": lambda s: 8 * len(s.grid_models) * _layers(s),
    "length": lambda s: 2,
    "scale-histograms": lambda s: 24,
}
UNMEASURED = {"paper", ""}
"""Whose cells may be empty: the paper prints no number for all that is measured."""
MAY_LACK = {
    "loss-curve": {"value"},  # nGPT may not reach GPT's last loss
    "token-budget": {"GPT needs", "speed-up", "speed-up, median"},  # or GPT nGPT's
    "condition-numbers": {"median, rows normalized"},  # those of nGPT are normalized
}


def check_form(folder: Path, name: str, size: Size) -> None:
    """Hold what `folder` has of an item to its form."""
    found = json.loads((folder / "result.json").read_text())
    assert (found["item"], found["size"]) == (name, size.name)
    assert found["paper"]
    assert found["notes"]
    rows = {table["name"]: len(table["rows"]) for table in found["tables"]}
    assert rows == {table: count(size) for table, count in ROWS[name].items()}
    columns = {(c["name"], c["unit"]) for table in found["tables"] for c in table["columns"]}
    assert columns >= set(COLUMNS[name].items())
    whose = {c["whose"] for table in found["tables"] for c in table["columns"]}
    assert "ours" in whose
    assert "paper" in whose or name == "learning-rate"  # of which the paper prints no number
    for table in found["tables"]:
        for row in table["rows"]:
            for cell, column in zip(row, table["columns"], strict=True):
                lacks = column["name"] in MAY_LACK.get(name, ())
                if cell is None:
                    assert column["whose"] in UNMEASURED or lacks, (table["name"], column)
                elif isinstance(cell, float):
                    assert math.isfinite(cell), (table["name"], column)
    assert len(found["figures"]) == FIGURES.get(name, lambda s: 0)(size)
    for figure in found["figures"]:
        assert figure["x"]
        assert figure["y"]
        assert figure["series"]
        points = [point for line in figure["series"] for point in line["points"]]
        assert points
        assert all(math.isfinite(value) for point in points for value in point)
        ElementTree.parse(folder / "pictures" / f"{figure['name']}.svg")
    drawn = {path.stem for path in (folder / "pictures").iterdir()}
    assert drawn == {figure["name"] for figure in found["figures"]}
