"""Tokens that nGPT needs for the end of a baseline: the table, the answer above it, the figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from spherelm.paper.noise import Noise
from spherelm.paper.scaling import figures, needed, page, times
from spherelm.paper.scaling.needed import Ends
from spherelm.paper.scaling.point import Point
from spherelm.paper.store import read
from tests.paper.test_scaling import LAW, made_up, tokens
from tests.paper.test_scaling_times import A_STEP

BUDGETS = (46, 92, 184)
BELOW_46M = ("under 46M, not measured", "under 1.00", "-")
"""What is told of a baseline's 46M tokens where nGPT ends lower with as many."""


def study(folder: Path, **ahead: float) -> Path:
    """GPT, and arms that need 1 / `ahead` of its tokens at every budget."""
    runs = folder / "data" / "scaling"
    for arm, times_ahead in {"gpt": 1.0, **ahead}.items():
        for millions in BUDGETS:
            point = Point(arm.replace("_", "-"), millions)
            made_up(runs, point, LAW.loss(times_ahead * tokens(millions)))
    return runs


def answered(runs: Path) -> str:
    return str(needed.answer(Ends.of(read(runs)), needed.ASKED))


def rows_of(folder: Path, name: str = "shares", at: str = "4k") -> list[list[str]]:
    """Of the table of shares, or another."""
    table = str(page.Data.read(folder).sections()[name])
    lines = [line for line in table.splitlines() if line.startswith(f"| 8x512 | {at}")]
    return [[cell.strip() for cell in line.split("|")[3:-1]] for line in lines]


def test_a_share_known_by_construction_is_found(tmp_path: Path) -> None:
    """Of each budget of the baseline, the largest first; also that an end is above all runs."""
    runs = study(tmp_path, ngpt=1.5)
    made_up(runs, Point("gpt-qk", 92), LAW.loss(1.2 * tokens(92)))  # one budget is an end, too
    made_up(runs, Point("ngpt-muon", 92), LAW.loss(3 * tokens(92)))  # but no curve
    slower = dataclasses.replace(A_STEP, arm="ngpt", median_ms=60.0, tokens_per_s=1_092_267)
    times.keep(tmp_path, [A_STEP, slower])
    loss = [f"{LAW.loss(tokens(d)):.3f}" for d in BUDGETS]
    of_qk = [f"{LAW.loss(1.2 * tokens(92)):.3f}", "1", "nGPT", "74M", "0.80", "one seed", "-"]
    assert rows_of(tmp_path) == [
        ["GPT", "184M", loss[2], "1", "nGPT", "123M", "0.67", "one seed", "0.80"],
        ["GPT", "92M", loss[1], "1", "nGPT", "61M", "0.67", "one seed", "0.80"],
        ["GPT", "46M", loss[0], "1", "nGPT", *BELOW_46M, "under 1.20"],
        ["GPT, QK-norm", "92M", *of_qk],
    ]
    assert answered(runs) == (
        "At 4k and 184M tokens: nGPT needs 0.67 (one seed) of the tokens of GPT, which is the best "
        "baseline, too."
    )


def test_far_ahead_a_share_is_less_than_the_smallest_run_has(tmp_path: Path) -> None:
    study(tmp_path, ngpt=3.0)
    largest, other, smallest = rows_of(tmp_path)
    assert largest[5:] == ["61M", "0.33", "one seed", "-"]
    assert other[5:] == ["under 46M, not measured", "under 0.50", "-", "-"]
    assert smallest[5:] == [*BELOW_46M, "-"]


def test_a_baseline_that_is_ahead_is_said_to_be(tmp_path: Path) -> None:
    runs = study(tmp_path, ngpt=1.2, gpt_qk_muon=3.0)
    shares = {(row[0], row[1]): row[5:7] for row in rows_of(tmp_path)}
    ahead = ["over 184M, not measured", "over 1.00"]
    assert shares["GPT", "46M"] == list(BELOW_46M[:2]), "and one that is behind, too"
    assert shares["GPT, QK-norm, Muon", "184M"] == ahead
    assert shares["GPT, QK-norm, Muon", "46M"] == ["115M", "2.50"]  # 3 / 1.2
    assert answered(runs) == (
        "At 4k and 184M tokens: nGPT needs 0.83 (one seed) of the tokens of GPT and over 1.00 of "
        "those of the best baseline, GPT, QK-norm, Muon."
    )


@pytest.mark.parametrize(
    ("of", "needs", "value", "low", "high"),
    [
        (92, 1.04, "over 1.00", 0.85, 0.99),  # within chance of the largest run
        (92, 2.00, "over 1.00", 1.0, 1.0),  # not
        (46, 0.90, "under 1.00", 1.01, 1.2),
        (46, 0.30, "under 1.00", 1.0, 1.0),
    ],
)
def test_beyond_a_curve_one_end_of_the_interval_is_told(
    of: int, needs: float, value: str, low: float, high: float
) -> None:
    """That on the side of the curve: a loss that chance may have put there is not certain."""
    curve = {tokens(d): [LAW.loss(tokens(d))] for d in (46, 92)}
    end = [LAW.loss(needs * tokens(of))]
    found = needed.read_off(curve, tokens(of), end, Noise(0.014, 20))
    unsure = needed.read_off(curve, tokens(of), end)
    assert found is not None
    assert unsure is not None
    assert found.value() == unsure.value() == value
    side, told = found.certainty.split()
    assert side == value.split()[0]
    assert low <= float(told) <= high
    assert unsure.certainty == "-"
    assert (found.told() == value) == (found.certainty == value)
    assert found.tokens.startswith(f"{side} {of}M")


def test_where_no_setting_has_several_seeds_the_spread_of_the_others_stands_in(
    tmp_path: Path,
) -> None:
    runs = study(tmp_path, ngpt=1.5)
    for arm in ("gpt", "ngpt"):
        for millions in (46, 92):
            loss = LAW.loss((2 if arm == "ngpt" else 1) * tokens(millions))
            made_up(runs, Point(arm, millions, context=1024), loss)
    assert "seeds" not in page.Data.read(tmp_path).sections()
    for seed in (1, 2):
        made_up(runs, Point("gpt", 184, seed=seed), LAW.loss(tokens(184)) + 0.01 * (seed - 1.5))
    (at_1k,) = (row for row in rows_of(tmp_path, at="1k") if row[:2] == ["GPT", "92M"])
    low, high = map(float, at_1k[7].split(" to "))
    assert low < float(at_1k[6]) < high
    of_seeds = " ".join(str(page.Data.read(tmp_path).sections()["seeds"]).split())
    assert "no setting has several seeds (8x512 and 1k), the" in of_seeds


def test_of_baselines_only_gpt_is_measured_against_others(tmp_path: Path) -> None:
    """What one good baseline needs for another's loss is no question of the study."""
    study(tmp_path, ngpt=1.2, gpt_qk=1.1, gpt_qk_muon=1.5)
    factors = rows_of(tmp_path, "factors")
    pairs = {(row[0], row[1]) for row in factors}
    better = {"GPT, QK-norm", "GPT, QK-norm, Muon"}
    assert pairs == {("GPT", arm) for arm in better} | {(arm, "nGPT") for arm in (*better, "GPT")}


def test_the_answer_is_that_of_the_best_arms_at_the_largest_budget_of_both(tmp_path: Path) -> None:
    """A larger budget of one side changes nothing, nor does an nGPT without a curve."""
    runs = study(tmp_path, ngpt=1.5, ngpt_muon=2.5, gpt_qk=1.2, gpt_muon=1.25)
    made_up(runs, Point("gpt", 368), LAW.loss(tokens(368)))
    made_up(runs, Point("ngpt-tied", 184), 2.6)
    expected = (
        "At 4k and 184M tokens: nGPT, Muon needs 0.40 (one seed) of the tokens of GPT and 0.50 "
        "(one seed) of those of the best baseline, GPT, Muon."
    )
    assert answered(runs) == expected
    assert page.Data.read(tmp_path).sections()["answer"].parts == [expected]
    for seed in (1, 2):
        made_up(runs, Point("gpt", 184, seed=seed), LAW.loss(tokens(184)) + 0.01 * (seed - 1.5))
    line = answered(runs)
    low, high = line.partition("0.40 (90 %: ")[2].partition(")")[0].split(" to ")
    assert float(low) < 0.4 < float(high)
    # Seeds of one arm tell of chance for all.
    low, high = line.partition("and 0.50 (90 %: ")[2].partition(")")[0].split(" to ")
    assert float(low) < 0.5 < float(high)


@pytest.mark.parametrize(
    "points",
    [
        [("gpt", 92), ("gpt", 184), ("ngpt", 46), ("ngpt", 368)],  # no budget of both
        [("gpt", 46), ("gpt", 92), ("ngpt", 92)],  # no curve
        [("gpt-qk", 46), ("gpt-qk", 92), ("ngpt", 46), ("ngpt", 92)],  # no GPT
    ],
)
def test_no_answer_is_made_up(points: Sequence[tuple[str, int]], tmp_path: Path) -> None:
    for arm, millions in points:
        loss = LAW.loss((2 if arm == "ngpt" else 1) * tokens(millions))
        made_up(tmp_path / "data" / "scaling", Point(arm, millions), loss)
    data = page.Data.read(tmp_path)
    assert needed.answer(Ends.of(data.records), needed.ASKED) is None
    assert "answer" not in data.sections()
    assert all(figure.span is None for figure in data.figures())


def test_the_figure_shows_the_tokens_that_are_not_needed(tmp_path: Path) -> None:
    runs = study(tmp_path, ngpt=1.5)
    ends, curves = figures.figures(read(runs))
    assert ends.span is not None
    assert ends.span.left == pytest.approx(tokens(184) / 1.5e6, rel=0.01)
    assert (ends.span.right, ends.span.y) == (tokens(184) / 1e6, LAW.loss(tokens(184)))
    assert ends.span.text == "nGPT: 0.67 of GPT's tokens"
    assert answered(runs) in ends.description
    assert curves.span is None


def test_the_figure_does_not_hide_the_best_baseline(tmp_path: Path) -> None:
    ends, _ = figures.figures(read(study(tmp_path, ngpt=1.5, gpt_qk_muon=1.2)))
    assert ends.span is not None
    assert ends.span.y == LAW.loss(tokens(184))  # the level is GPT's
    assert ends.span.text == "nGPT: 0.67 of GPT's tokens,\n0.80 of the best baseline's"
