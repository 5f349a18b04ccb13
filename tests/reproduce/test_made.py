"""Items made of records by hand: what their numbers are, and what they say where runs diverged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spherelm.paper import registry, sizes
from spherelm.paper.ablation_rows import rows_of
from spherelm.paper.ablations import TABLES
from spherelm.paper.fit import PowerLaw
from spherelm.paper.points import BUDGETS, Point
from spherelm.paper.result import Column, Result
from spherelm.paper.size import Size
from spherelm.paper.store import Record
from spherelm.paper.workbench import Workbench

Losses = Callable[[Point], Sequence[float]]
"""Validation losses of a run, at equal distances; none where it diverged."""


@dataclass
class Made(Workbench):
    """A workbench whose runs nobody trained."""

    losses: Losses = field(default=lambda point: [])

    def record(self, point: Point) -> Record:
        job, losses = self.size.job(point), self.losses(point)
        each = job.tokens // len(losses) if losses else 0
        curve = tuple((each * n, loss) for n, loss in enumerate(losses, start=1))
        return Record(job.id, job.config, curve, bool(losses), not losses, 1.0, {})


def made(name: str, size: Size, losses: Losses) -> Result:
    return registry.get(name).make(Made(size, Path("nowhere"), losses=losses))


def cells(result: Result, table: str) -> list[dict[tuple[str, str], Any]]:
    """The rows of a table, by the name of a column and whose it is."""
    (found,) = (each for each in result.tables if each.name == table)
    keys = [(column.name, column.whose) for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


# --- loss-curve ----------------------------------------------------------------------------------

NANO = sizes.get("nano")


def values(result: Result) -> dict[str, Any]:
    return {row["what", ""]: row["value", "ours"] for row in cells(result, "speed-up")}


def test_a_speed_up_is_read_where_the_curve_has_gpts_last_loss() -> None:
    curves = {"gpt": [5.0, 4.0, 3.0, 2.0], "ngpt": [4.0, 2.0, 1.5, 1.0]}
    result = made("loss-curve", NANO, lambda point: curves[point.arch])
    steps = NANO.budgets["200k"]
    assert values(result) == {
        "GPT's loss at its end": 2.0,
        "nGPT's loss at its end": 1.0,
        "GPT's iterations": steps,
        "nGPT's iterations to GPT's last loss": steps / 2,
        "speed-up in iterations and tokens": 2.0,
    }
    (picture,) = result.figures
    span = picture.chart.span
    assert span is not None
    assert (span.left, span.right, span.y, span.text) == (steps / 2, steps, 2.0, "2.00×")
    assert [line.points[-1][0] for line in picture.chart.series] == [steps, steps]


@pytest.mark.parametrize(
    ("gpt", "says"),
    [([2.0, 1.0], "nGPT does not reach GPT's last loss"), ([], "GPT diverged here")],
)
def test_where_there_is_no_speed_up_it_is_said_why(gpt: list[float], says: str) -> None:
    curves = {"gpt": gpt, "ngpt": [4.0, 2.0]}
    result = made("loss-curve", NANO, lambda point: curves[point.arch])
    assert values(result)["speed-up in iterations and tokens"] is None
    (picture,) = result.figures
    assert picture.chart.span is None
    assert says in picture.caption


# --- token-budget --------------------------------------------------------------------------------

LAW = PowerLaw(1.0, 40.0, 0.14 * 1.3**3)
"""An exponent of those that are tried, so that the fit finds it."""
TIMES = dict(zip(BUDGETS, (0.95, 1.5, 1.25, 1.75), strict=True))
"""Tokens that GPT needs for nGPT's loss, over nGPT's."""


def by_law(point: Point) -> list[float]:
    tokens = NANO.job(point).tokens
    return [LAW.loss(tokens if point.arch == "gpt" else tokens * TIMES[point.budget])]


def test_a_factor_is_what_gpt_needs_over_what_ngpt_had() -> None:
    result = made("token-budget", NANO, by_law)
    for number, row in enumerate(cells(result, "losses")):
        times = TIMES[BUDGETS[number % 4]]
        tokens = row["budget", ""]
        assert row["speed-up", "ours"] == pytest.approx(times, rel=1e-6)
        assert row["GPT needs", "ours"] == pytest.approx(times * tokens, rel=1e-6)
        assert row["GPT's loss", "ours"] == LAW.loss(tokens)
        where = ("before GPT's smallest", "between GPT's", "between GPT's", "beyond GPT's largest")
        assert row["which is", ""].startswith(where[number % 4])
    for row in cells(result, "speed-up"):
        assert row["budgets with a speed-up", ""] == 4
        assert row["speed-up, median", "ours"] == pytest.approx((1.25 + 1.5) / 2, rel=1e-6)


def test_where_there_is_no_factor_it_is_said_who_is_ahead() -> None:
    """The median leaves such a budget out, which must not hide that nGPT lost there."""
    far = dict(zip(BUDGETS, (0.5, 1.5, 1.25, 3.0), strict=True))

    def losses(point: Point) -> list[float]:
        tokens = NANO.job(point).tokens
        return [LAW.loss(tokens if point.arch == "gpt" else tokens * far[point.budget])]

    result = made("token-budget", NANO, losses)
    rows = cells(result, "losses")
    for first, last in zip(rows[::4], rows[3::4], strict=True):
        assert first["speed-up", "ours"] is last["speed-up", "ours"] is None
        assert first["which is", ""].endswith("nGPT is behind")
        assert last["which is", ""].endswith("nGPT is ahead")
    assert {row["budgets with a speed-up", ""] for row in cells(result, "speed-up")} == {2}
    assert any(
        "The median is over the budgets that have a speed-up" in note for note in result.notes
    )


def test_without_gpts_runs_there_is_no_factor() -> None:
    result = made("token-budget", NANO, lambda point: [] if point.arch == "gpt" else [3.0])
    for row in cells(result, "losses"):
        assert row["speed-up", "ours"] is row["GPT's loss", "ours"] is None
        assert row["nGPT's loss", "ours"] == 3.0
        assert "no fit" in row["which is", ""]
    assert all(row["speed-up, median", "ours"] is None for row in cells(result, "speed-up"))


def test_what_gpt_reached_is_a_row_also_where_ngpt_diverged() -> None:
    def losses(point: Point) -> list[float]:
        return [] if (point.arch, point.budget) == ("ngpt", "200k") else by_law(point)

    rows = cells(made("token-budget", NANO, losses), "losses")
    assert len(rows) == 4 * len(NANO.panels)
    for row in rows[3::4]:
        assert row["GPT's loss", "ours"] == LAW.loss(row["budget", ""])
        assert row["nGPT's loss", "ours"] is row["speed-up", "ours"] is None
        assert row["which is", ""] == "nGPT diverged"


def test_the_one_loss_that_the_paper_prints_stands_beside_that_run_alone() -> None:
    size = sizes.get("paper")
    rows = cells(made("token-budget", size, lambda point: [3.0]), "losses")
    (row,) = (row for row in rows if row["nGPT's loss", "paper"] is not None)
    assert row["nGPT's loss", "paper"] == 2.252
    assert (row["model", ""], row["context", ""]) == ("0.5B", "1k")
    assert row["budget", ""] == 100_000 * 512 * 1024


# --- learning-rate -------------------------------------------------------------------------------


def by_rate(point: Point) -> list[float]:
    """GPT is best at its second rate, nGPT at its last; alpha stored at 0.1 diverges always."""
    if point.arch == "gpt":
        return [] if point.rate == 4 else [2 + abs(point.rate - 1)]
    slow = (point.model, point.context, point.variant) == ("1B", "8k", "baseline")
    return [] if slow else [3 - 0.1 * point.rate]


def test_the_best_rate_is_that_of_the_lowest_loss() -> None:
    result = made("learning-rate", NANO, by_rate)
    best = {"GPT": (1.0, 2.0, "inside the ladder"), "nGPT": (4.0, 2.6, "at the end of the ladder")}
    rows = cells(result, "best")
    assert len(rows) == 13
    for row in rows[:-1]:
        rate, loss, where = best[row["curve", ""]]
        assert row["learning rate", "ours"] == pytest.approx(rate * sizes.NANO_RATE)
        assert row["final loss", "ours"] == pytest.approx(loss)
        assert row["where", ""] == where
    assert rows[-1]["curve", ""] == "nGPT, α at 0.1"
    assert rows[-1]["learning rate", "ours"] is rows[-1]["final loss", "ours"] is None
    assert rows[-1]["where", ""] == "all diverged"
    every = cells(result, "runs")
    assert len(every) == 13 * 4
    assert sum(row["final loss", "ours"] is None for row in every) == 6 + 4
    for picture in result.figures[:-1]:
        assert [len(line.points) for line in picture.chart.series] == [3, 4]


# --- ablations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", [[2.5], []])
def test_a_change_is_against_the_first_row(baseline: list[float]) -> None:
    losses: Mapping[str, list[float]] = {
        "baseline": baseline,
        "no-qk-norm": [2.6],
        "slerp": [],
    }
    size = dataclasses.replace(NANO, built_in=False)  # and so without tasks
    bench = Made(size, Path("nowhere"), losses=lambda point: losses[point.variant])
    found = {row.name: cells for row, _, cells in rows_of(bench, "norm")}
    loss, theirs, change, their_change, accuracy, their_accuracy = found["no-qk-norm"]
    assert loss == 2.6
    assert change == (pytest.approx(4.0) if baseline else None)
    assert theirs == pytest.approx(2.252 * 1.0012)
    assert (their_change, accuracy, their_accuracy) == (0.12, None, 54.71)
    assert found["slerp"][0] is found["slerp"][2] is None
    assert list(found) == [row.name for row in TABLES["norm"]]


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "digits", "shown"),
    [
        (None, 2, "–"),
        ("a word", 2, "a word"),
        (1234.5678, 2, "1,234.57"),
        (1234567, None, "1,234,567"),
        (0.123456, None, "0.1235"),
        (12345.678, None, "12,346"),
        (2000.0, None, "2,000"),
    ],
)
def test_a_cell_has_the_digits_that_count(cell: Any, digits: int | None, shown: str) -> None:
    assert Column("x", digits=digits).show(cell) == shown
