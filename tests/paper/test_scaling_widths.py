"""The best rate by width, of made-up runs for which it is known."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from spherelm import presets
from spherelm.config_io import override
from spherelm.measured.recommend import FALL
from spherelm.paper.scaling import settings, widths
from spherelm.paper.scaling.widths import Ended

NUGPT = {"optim.lr_groups": "nugpt", "optim.base_d_model": 128}


def runs(law: float, rates: list[float], preset: str = "ngpt-nano", **fields: Any) -> list[Ended]:
    """Losses that are parabolas over log rate, lowest at 4e-3 · (64 / width)^law."""
    found = []
    for width in (64, 128, 256):
        best = 4e-3 * (64 / width) ** law
        for lr in rates:
            own = {"model.d_model": width, "model.n_heads": 2, "optim.lr": lr}
            run = override(presets.get(preset), own | fields)
            found.append(Ended(run, 1.5 + math.log(lr / best) ** 2))
    return found


LADDER = [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]


@pytest.mark.parametrize(("law", "told"), [(1.0, "times 0.50"), (0.0, "times 1.00")])
def test_a_law_is_found_again(law: float, told: str) -> None:
    best, every = widths.tables(runs(law, LADDER))
    rates = " | ".join(f"{4e-3 * 0.5 ** (law * i):.2g}" for i in range(3))
    assert best.splitlines()[2:] == [f"| nGPT | 0 | {rates} | {told} |"]
    assert len(every.splitlines()) == 2 + 3
    (chart,) = widths.charts(runs(law, LADDER))
    points = [(width, 4e-3 * (64 / width) ** law) for width in (64, 128, 256)]
    assert chart.series[0].points == [pytest.approx(point) for point in points]


def test_a_best_rate_at_the_end_of_those_tried_is_none() -> None:
    """It stands in brackets, counts for no law, and is not drawn."""
    tried = runs(1.0, [2e-3, 4e-3, 8e-3])
    best, _ = widths.tables(tried)
    assert best.splitlines()[2] == "| nGPT | 0 | 0.004 | (0.002) | (0.002) |  |"
    (chart,) = widths.charts(tried)
    assert [width for width, _ in chart.series[0].points] == [64]
    assert widths.charts(runs(1.0, [1e-5])) == []
    assert list(widths.tables([])) == []


def test_models_seeds_and_rates_by_kind_are_rows_of_their_own() -> None:
    tried = runs(1.0, LADDER) + runs(0.0, LADDER, **NUGPT)
    tried += runs(1.0, LADDER, "gpt-nano") + runs(1.0, LADDER, **{"train.seed": 1})
    best, every = widths.tables(tried)
    titles = [tuple(row.split(" | ")[:2]) for row in best.splitlines()[2:]]
    assert titles == [
        ("| GPT", "0"), ("| nGPT", "0"), ("| nGPT, nuGPT's rates", "0"), ("| nGPT", "1"),
    ]  # fmt: skip
    assert len(every.splitlines()) == 2 + 4 * 3
    (chart,) = widths.charts(tried)
    assert [line.label for line in chart.series] == ["GPT", "nGPT", "nGPT, nuGPT's rates"]


def test_the_package_takes_other_widths_than_the_sweeps_and_plain_rates(tmp_path: Path) -> None:
    fields = [
        {"model.d_model": 256, "optim.lr": 1e-3},
        {"model.d_model": 128, "optim.lr": 2e-3},
        {"model.d_model": 256, "optim.lr": 4e-3, **NUGPT},
    ]
    kept = [{"preset": "ngpt-nano", "fields": each, "val_loss": 1.3} for each in fields]
    file = tmp_path / widths.FILE
    file.parent.mkdir()
    file.write_text(json.dumps({"format": "spherelm runs of presets", "version": 1, "runs": kept}))
    assert [(s.size.d_model, s.lr) for s in settings.tried(tmp_path)] == [(256, 1e-3)]
    assert len(widths.read(tmp_path)) == 3


def test_rates_are_chosen_by_the_law_that_was_measured() -> None:
    """The fall over two doublings. Plain GPT's is the furthest off: its rate falls faster."""
    tried = {(s.arm, s.width): s for s in widths.sweeps(widths.read(settings.OURS)) if not s.nugpt}
    for arm in ("gpt", "gpt-qk-muon", "ngpt", "ngpt-muon"):
        measured = tried[arm, 256].best / tried[arm, 64].best
        chosen = 0.25 ** FALL.get("muon" if "muon" in arm else "adamw", 1.0)
        assert 1 / 1.55 < measured / chosen < 1.1, arm


def test_the_page_tells_the_losses_and_rates_of_its_tables() -> None:
    page = (settings.OURS / "width.md").read_text()
    told, _, generated = page.partition("<!-- scaling: widths -->")
    shown = set(re.findall(r"\d\.\d{3}(?!\d)", generated))
    assert set(re.findall(r"(?<![\d.])1\.\d{3}(?!\d)", told)) <= shown
    falls = set(re.findall(r"times (0\.\d\d)", told))
    assert falls == set(re.findall(r"times (0\.\d\d)", generated))
