"""The paper's ablations in the study: no arm's curve has them, and chance stands beside them."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from spherelm.config import RunConfig
from spherelm.config_io import read_toml, to_toml
from spherelm.paper import store
from spherelm.paper.ablations import TABLES, ablate
from spherelm.paper.noise import Noise, student
from spherelm.paper.scaling import needed, page, settings
from spherelm.paper.scaling.grid import GRID
from spherelm.paper.scaling.point import Point
from tests.paper.test_scaling import made_up

ROWS = [row.name for table in TABLES.values() for row in table if row.name != "baseline"]


def test_every_row_is_run_once_with_nothing_else_changed(tmp_path: Path) -> None:
    points = [p for p in GRID if p.variant]
    assert [p.variant for p in points] == ROWS
    plain = Point("ngpt", 92).config()
    for point in points:
        run = point.config()
        assert point.id == f"ngpt-4k-92m-linear-lr0.008-s0-{point.variant}"
        assert run.model == ablate(plain.model, point.variant) != plain.model
        assert (run.optim, run.train) == (plain.optim, plain.train)
        (tmp_path / "run.toml").write_text(to_toml(run))
        assert read_toml(tmp_path / "run.toml", RunConfig()) == run
    recipes = [GRID.index(p) for p in GRID if p.arm in ("ngpt-lgp", "ngpt-tied")]
    assert max(recipes) < GRID.index(points[0])


def test_a_row_belongs_to_no_arm_s_curve_and_no_rate_is_chosen_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "scaling"
    made_up(folder, Point("ngpt", 92), 3.65)
    made_up(folder, Point("ngpt-no-qk", 92), 3.66)
    made_up(folder, Point("ngpt-no-qk", 46), 4.0)
    for name in ("s_z-scale-1", "no-qk-norm", "s_u-init-small"):
        made_up(folder, Point("ngpt", 92, variant=name), 3.0)  # below both
    bests = needed.Ends.of(store.read(folder)).bests
    assert {(b.arm, b.loss) for b in bests} == {
        ("ngpt", 3.65),
        ("ngpt-no-qk", 3.66),
        ("ngpt-no-qk", 4.0),
    }
    chosen_from = settings.tried(tmp_path)
    assert [loss for s in chosen_from for _, loss in s.losses] == [3.65]


def rows(results: Path) -> dict[str, list[str]]:
    page.redraw(results)
    lines = (results / page.PAGE).read_text().splitlines()
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    begin = next(i for i, row in enumerate(split) if row[0] == "row")
    return {row[0]: row[1:] for row in split[begin:] if len(row) == 6}


def test_differences_stand_beside_what_chance_does(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "scaling"
    for seed, loss in enumerate((3.65, 3.67, 3.66)):
        made_up(folder, Point("ngpt", 92, seed=seed), loss)
    made_up(folder, Point("ngpt", 92, lr=4e-3), 3.0)  # another setting
    made_up(folder, Point("ngpt", 92, variant="slerp"), 3.645)
    made_up(folder, Point("ngpt", 92, variant="s_z-scale-1"), 3.75)
    made_up(folder, Point("ngpt", 92, variant="alpha-scalar"), 3.55)
    for seed, loss in enumerate((3.655, 3.675)):
        made_up(folder, Point("ngpt", 92, variant="s_qk-scalar-s_u-scalar", seed=seed), loss)
    made_up(folder, Point("ngpt", 92, variant="s_z-scalar"), 3.66)
    made_up(folder, Point("ngpt", 92, variant="s_z-scalar", seed=7), 9.0)  # without its like
    made_up(folder, Point("ngpt", 92, variant="no-qk-norm"), 2.0, finished=False)
    shown = rows(tmp_path)
    chance = 2.920 * math.sqrt(2) * 0.01  # two degrees of freedom; a deviation of 0.01
    assert shown["unchanged, seed 0"][0] == "3.650"
    assert shown["SLERP in place of LERP"] == ["3.645", "-0.005", f"{chance:.3f}", "-0.14", "-0.08"]
    assert shown["s_z: start 1, stored at 1"][1:3] == ["**+0.100**", f"{chance:.3f}"]
    assert shown["α_A and α_M: scalar"][1:4] == ["**-0.100**", f"{chance:.3f}", "-2.74"]
    two = shown["s_qk: scalar; s_u and s_ν: scalar"]
    assert two[:3] == ["3.665", "+0.005", f"{chance / math.sqrt(2):.3f}"]
    assert shown["s_z: scalar"][:2] == ["3.660", "+0.010"]
    assert not any("QK-norm" in name for name in shown)
    text = " ".join((tmp_path / page.PAGE).read_text().split())
    assert "s_z starts at 10 and α at 0.125, in the paper at 1 and 0.05" in text
    assert "over seeds times Student's t" in text
    assert "together: 0.010 at 8x512 and 4k (2 degrees of freedom)" in text
    assert "nGPT, slerp" not in text  # among the runs


def test_one_seed_says_nothing_of_chance(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "scaling"
    made_up(folder, Point("ngpt", 92), 3.65)
    made_up(folder, Point("ngpt", 92, variant="slerp"), 3.75)
    assert rows(tmp_path)["SLERP in place of LERP"][1:3] == ["+0.100", "-"]
    assert Noise.of([[3.65], [3.75]]) is None
    text = " ".join((tmp_path / page.PAGE).read_text().split())
    assert "nothing is known of what chance does" in text


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 6.314), (2, 2.920), (10, 1.812), (11, 1.796), (20, 1.725), (30, 1.697), (120, 1.658)],
)
def test_students_t_is_that_of_its_table(freedom: int, t: float) -> None:
    """To its three digits, also with as many degrees of freedom as the study has by now."""
    assert student(freedom) == pytest.approx(t, abs=6e-4)


@pytest.mark.parametrize("seeds", [(2,), (3,), (12,), (3, 1, 2)])
def test_nine_of_ten_differences_of_equal_settings_are_below_it(seeds: tuple[int, ...]) -> None:
    draw, below = random.Random(0), 0
    for _ in range(2000):
        noise = Noise.of([[draw.gauss(3.65, 0.02) for _ in range(n)] for n in seeds])
        assert noise is not None
        below += abs(draw.gauss(3.65, 0.02) - draw.gauss(3.65, 0.02)) < noise.below(1)
    assert below / 2000 == pytest.approx(0.9, abs=0.025)
