"""What rates did to each arm: the table, and the picture of the budget with most of them."""

from __future__ import annotations

import json
from pathlib import Path

from spherelm.paper.scaling import rates
from spherelm.paper.scaling.point import Point
from spherelm.paper.store import read
from tests.paper.test_scaling import made_up


def ladder(runs: Path, arm: str, millions: int, **losses: float) -> None:
    """Runs of an arm at rates that are named in thousandths: `r4` is 4e-3."""
    for name, loss in losses.items():
        made_up(runs, Point(arm, millions, lr=float(name[1:]) * 1e-3), loss)


def rows_of(runs: Path) -> dict[tuple[str, str], list[str]]:
    """By tokens and arm, what comes after the seed."""
    text = "\n".join(rates.tables(read(runs)))
    lines = [line.split("|")[3:-1] for line in text.splitlines() if line.startswith("| 8x512")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return {(row[0], row[1]): row[4:] for row in cells}


def test_the_best_rate_is_bold_and_whether_it_lies_inside_is_said(tmp_path: Path) -> None:
    ladder(tmp_path, "gpt", 92, r2=3.9, r4=3.8, r8=4.5)
    ladder(tmp_path, "ngpt", 92, r4=3.7, r8=3.6)
    ladder(tmp_path, "ngpt-muon", 92, r4=3.4, r8=3.5)
    ladder(tmp_path, "gpt-qk", 92, r4=3.7)  # one rate is no comparison
    assert rows_of(tmp_path) == {
        ("92M", "GPT"): ["3.900", "**3.800**", "4.500", "yes"],
        ("92M", "nGPT"): ["", "3.700", "**3.600**", "none higher"],
        ("92M", "nGPT, Muon"): ["", "**3.400**", "3.500", "none lower"],
    }


def test_only_runs_that_differ_by_the_rate_alone_stand_in_a_row(tmp_path: Path) -> None:
    """Not another seed, another value, another schedule, or Muon at a rate of its own."""
    ladder(tmp_path, "ngpt-muon", 92, r4=3.5)
    for other in (
        Point("ngpt-muon", 92, lr=8e-3, seed=1),
        Point("ngpt-muon", 92, lr=8e-3, tuned=(("s_z", 20.0),)),
        Point("ngpt-muon", 92, "wsd", lr=8e-3),
        Point("ngpt-muon", 92, lr=8e-3, muon_lr=4e-3),
        Point("ngpt-muon", 46, lr=8e-3),
        Point("ngpt", 92, variant="slerp"),
        Point("ngpt", 92, lr=4e-3),
    ):
        made_up(tmp_path, other, 3.4)
    assert rows_of(tmp_path) == {}
    ladder(tmp_path, "ngpt-muon", 92, r8=3.6)
    assert list(rows_of(tmp_path)) == [("92M", "nGPT, Muon")]


def test_a_rate_at_which_a_run_diverged_was_tried(tmp_path: Path) -> None:
    ladder(tmp_path, "gpt", 92, r4=3.8)
    high = Point("gpt", 92, lr=8e-3)
    made_up(tmp_path, high, 9.0, finished=False)
    ended = {"finished": False, "diverged": True, "seconds": 80.0}
    (tmp_path / high.id / "result.json").write_text(json.dumps(ended))
    assert rows_of(tmp_path) == {("92M", "GPT"): ["**3.800**", "diverged", "none lower"]}
    (chart,) = rates.charts(read(tmp_path))
    assert [line.points for line in chart.series] == [[(4e-3, 3.8)]]


def test_the_picture_is_of_the_budget_with_most_rates(tmp_path: Path) -> None:
    ladder(tmp_path, "gpt", 46, r2=4.2, r4=4.1)
    ladder(tmp_path, "gpt", 92, r2=3.9, r4=3.8, r8=4.5)
    ladder(tmp_path, "ngpt", 92, r4=3.7, r8=3.6)
    beta2 = (("beta2", 0.99),)
    for rate, loss in ((4e-3, 3.71), (8e-3, 3.61), (16e-3, 3.63)):  # more rates than nGPT's own
        made_up(tmp_path, Point("ngpt", 92, lr=rate, tuned=beta2), loss)
    (chart,) = rates.charts(read(tmp_path))
    assert chart.name == "rates-4k"
    assert "92M tokens" in chart.title
    assert chart.description.endswith("GPT 0.004; nGPT 0.008.")
    points = {line.label: line.points for line in chart.series}
    assert points["GPT"] == [(2e-3, 3.9), (4e-3, 3.8), (8e-3, 4.5)]
    assert points["nGPT"] == [(4e-3, 3.71), (8e-3, 3.61), (16e-3, 3.63)]
    assert chart.y.top == 3.8 + 0.3, "GPT at 8e-3 would press all else flat"
