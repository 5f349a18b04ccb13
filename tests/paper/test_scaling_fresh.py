"""The study's question asked of seeds that took no part in choosing a setting."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spherelm.paper.scaling import fresh
from spherelm.paper.scaling.point import Point
from spherelm.paper.store import read
from tests.paper.test_scaling import LAW, made_up, tokens

BUDGETS = (46, 92, 184)
LUCK = 0.3
"""By which seed 0 of a setting ends lower than its other seeds: what chose it."""


def seeds(runs: Path, point: Point, *losses: float) -> None:
    for seed, loss in enumerate(losses):
        made_up(runs, dataclasses.replace(point, seed=seed), loss)


def lucky(runs: Path, arm: str, rates: tuple[float, float], ahead: float, luck: float) -> None:
    """An arm with three seeds of its best setting, of which the first was lucky, and a second
    setting that lost against that one."""
    for millions in BUDGETS:
        loss = LAW.loss(ahead * tokens(millions))
        seeds(runs, Point(arm, millions, lr=rates[0]), loss - luck, loss + 0.001, loss - 0.001)
        seeds(runs, Point(arm, millions, lr=rates[1]), loss + 0.5)


def rows_of(runs: Path) -> list[list[str]]:
    text = "\n".join(fresh.tables(read(runs)))
    lines = [line for line in text.splitlines() if line.startswith("| 8x512")]
    return [[cell.strip() for cell in line.split("|")[3:-1]] for line in lines]


def test_the_seed_that_chose_is_left_out_on_both_sides(tmp_path: Path) -> None:
    """nGPT is ahead by half of the tokens; its luck at seed 0 would make more of it."""
    lucky(tmp_path, "gpt", (2e-3, 4e-3), ahead=1.0, luck=0.0)
    lucky(tmp_path, "ngpt", (4e-3, 8e-3), ahead=2.0, luck=LUCK)
    rows = {row[0]: row for row in rows_of(tmp_path)}
    assert list(rows) == ["46M", "92M", "184M"]
    assert rows["46M"][8] == "under 1.00", "it lies above all of nGPT's runs"
    gpt, ngpt = LAW.loss(tokens(184)), LAW.loss(2 * tokens(184))
    losses = ["GPT", f"{gpt:.3f}", "nGPT", "1, 2", f"{ngpt:.3f}", f"{ngpt - gpt:+.3f}"]
    assert rows["184M"][1:7] == losses
    assert rows["184M"][8] == "0.50"


def test_a_seed_that_another_setting_was_run_with_has_chosen(tmp_path: Path) -> None:
    lucky(tmp_path, "gpt", (2e-3, 4e-3), ahead=1.0, luck=0.0)
    lucky(tmp_path, "ngpt", (4e-3, 8e-3), ahead=2.0, luck=LUCK)
    loss = LAW.loss(2 * tokens(184)) + 0.5
    made_up(tmp_path, Point("ngpt", 184, lr=8e-3, seed=1), loss)
    assert [row[4] for row in rows_of(tmp_path) if row[0] == "184M"] == ["2"]
    made_up(tmp_path, Point("ngpt", 184, lr=8e-3, seed=2), loss)
    assert not [row for row in rows_of(tmp_path) if row[0] == "184M"]


def unchosen(runs: Path, arm: str, rate: float, ahead: float) -> None:
    """An arm with three seeds of the one setting that it was given."""
    for millions in BUDGETS:
        loss = LAW.loss(ahead * tokens(millions))
        seeds(runs, Point(arm, millions, lr=rate), loss + 0.002, loss + 0.001, loss - 0.001)


@pytest.mark.parametrize("arm", ["gpt", "ngpt"])
def test_beside_one_that_was_chosen_stands_one_that_was_not(tmp_path: Path, arm: str) -> None:
    """All seeds of an arm that was given one setting chose nothing; the other's first one did."""
    for each, rates in {"gpt": (2e-3, 4e-3), "ngpt": (4e-3, 8e-3)}.items():
        ahead = 2.0 if each == "ngpt" else 1.0
        if each == arm:
            unchosen(tmp_path, each, rates[0], ahead)
        else:
            lucky(tmp_path, each, rates, ahead, luck=LUCK)
    rows = {row[0]: row for row in rows_of(tmp_path)}
    assert rows["184M"][4] == "1, 2"
    gpt, ngpt = LAW.loss(tokens(184)), LAW.loss(2 * tokens(184))
    assert rows["184M"][6] == f"{ngpt - gpt:+.3f}"


def test_where_nothing_was_chosen_nothing_is_told(tmp_path: Path) -> None:
    """Arms that were given one setting have nothing to be lucky among."""
    unchosen(tmp_path, "gpt", 2e-3, ahead=1.0)
    unchosen(tmp_path, "ngpt", 4e-3, ahead=2.0)
    assert rows_of(tmp_path) == []
