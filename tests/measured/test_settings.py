"""What was tried, as the package has it: what the records say of rates, no more and no less."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from spherelm import RunConfig, presets
from spherelm.config_io import override, to_toml
from spherelm.errors import UserError
from spherelm.measured import settings
from spherelm.measured.recommend import recommend
from spherelm.measured.settings import gather, kind_of, measured, read, recipe_of, to_json
from spherelm.paper import store
from spherelm.paper.scaling import settings as of_records
from spherelm.paper.scaling.arms import MAIN
from spherelm.paper.scaling.grid import GRID
from spherelm.paper.scaling.identity import arm_of, variant_of
from spherelm.paper.scaling.point import Point
from tests.paper.test_scaling import made_up

ROOT = Path(__file__).parents[2]
AGAIN = "`spherelm reproduce scaling --redraw` writes it again"


def test_the_package_has_what_the_records_say() -> None:
    tried = of_records.tried(ROOT / "docs" / "results")
    assert settings.FILE.read_text() == to_json(tried), AGAIN
    assert read() == tried
    finished = [r for r in store.read(of_records.OURS / "data" / "scaling") if r.finished]
    records = [r for r in finished if not variant_of(r.id) and arm_of(r.config) in MAIN]
    study = [s for s in measured() if s.page.endswith("headline.md")]
    losses = sorted(y for setting in study for _, y in setting.losses if math.isfinite(y))
    assert losses == pytest.approx(sorted(r.loss for r in records), abs=1e-6)  # as it is rounded
    assert {dict(s.kind)["model.arch"] for s in measured()} == {"gpt", "ngpt"}


def test_a_recipe_counts_where_two_of_its_rates_were_compared(tmp_path: Path) -> None:
    """Else it has its base's rate, at one budget: the base's series says more of the best one."""
    folder = tmp_path / "data" / "scaling"
    for millions, loss in ((46, 3.8), (184, 3.4)):
        for lr in (4e-3, 8e-3):
            made_up(folder, Point("ngpt-muon", millions, lr=lr), loss + abs(lr * millions - 0.5))
    made_up(folder, Point("ngpt-muon-tied", 46), 3.7)
    run = Point("ngpt-muon-tied", 184).config()
    assert recommend(run, (), of_records.tried(tmp_path)).run.optim.lr == 4e-3
    made_up(folder, Point("ngpt-muon-tied", 92, lr=4e-3), 3.6)  # two rates, at two budgets
    assert recommend(run, (), of_records.tried(tmp_path)).run.optim.lr == 4e-3
    made_up(folder, Point("ngpt-muon-tied", 46, lr=6e-3), 3.6)
    made = recommend(run, (), of_records.tried(tmp_path))
    assert (made.run.optim.lr, made.basis.unlike) == (6e-3, ())


def test_runs_that_diverged_are_there_and_unfinished_ones_are_not(tmp_path: Path) -> None:
    """Also one that diverged before its first evaluation; in a file that any reader of JSON reads.

    An unfinished run says nothing: it was stopped, whatever its loss.
    """
    records = tmp_path / "data" / "scaling"
    ends: list[tuple[float, dict[str, bool]]] = [
        (2e-3, {"finished": True}), (4e-3, {"finished": False, "diverged": True}),
        (8e-3, {"finished": False}),
    ]  # fmt: skip
    for lr, end in ends:
        folder = records / f"lr{lr}"
        folder.mkdir(parents=True)
        run = override(presets.get("ngpt-nano"), {"optim.lr": lr})
        (folder / "config.toml").write_text(to_toml(run))
        last = {"step": run.train.steps, "tokens": run.tokens, "val_loss": 3.5}
        (folder / "metrics.jsonl").write_text(json.dumps(last) + "\n" if end["finished"] else "")
        (folder / "result.json").write_text(json.dumps(end | {"seconds": 1.0}))
    (tmp_path / of_records.SWEEPS["nano"]).write_text(
        "preset,steps,arch,setting,seed,val_loss\n"
        "nano,1500,gpt,lr=0.008 warmup=0.2 init=0.7 decay=0.1,0,inf\n"
    )
    tried = of_records.tried(tmp_path)
    found = {setting.lr: setting.losses for setting in tried}
    assert found == {2e-3: ((0, 3.5),), 4e-3: ((0, math.inf),), 8e-3: ((0, math.inf),)}
    assert {s.lr: dict(s.kind)["model.arch"] for s in tried}[8e-3] == "gpt"  # that of the sweep
    text = to_json(tried)
    assert "Infinity" not in text
    (tmp_path / "measured.json").write_text(text)
    assert read(tmp_path / "measured.json") == tried


def test_seeds_are_one_setting_and_all_else_is_not() -> None:
    runs = {point.config(): 3.0 + point.seed for point in GRID}
    runs = {r: y for r, y in runs.items() if r.optim.muon_lr != r.optim.lr}  # the same as unset
    found = gather((run, "page", loss) for run, loss in runs.items())
    of_seed_0 = {override(run, {"train.seed": 0}) for run in runs}
    assert len(found) == len(of_seed_0) < len(runs)
    assert ((0, 3.0), (1, 4.0), (2, 5.0)) in {setting.losses for setting in found}


def test_budgets_share_a_recipe() -> None:
    """Steps are rounded to whole ones: the share of the warmup is not."""
    for arm in ("gpt", "ngpt"):
        runs = [Point(arm, millions).config() for millions in (46, 92, 184, 368)]
        assert len({recipe_of(run) for run in runs}) == 1
        recipe = dict(recipe_of(runs[0]))
        assert ("model.init_std" in recipe) == ("optim.weight_decay" in recipe) == (arm == "gpt")
        assert ("model.s_z.init" in recipe) == (arm == "ngpt")


def test_values_are_told_in_units_that_carry_over() -> None:
    run = override(
        presets.get("gpt-nano"),
        {"model.init_std": 0.5 / math.sqrt(128), "optim.final_lr": 4e-4, "optim.schedule": "log"},
    )
    recipe = dict(recipe_of(run))
    assert recipe["optim.warmup_steps"] == 0.4
    assert recipe["model.init_std"] == 0.5
    assert recipe["optim.final_lr"] == 0.2
    assert recipe["optim.log_rho"] == 0.1
    assert "optim.decay_share" not in recipe
    assert dict(recipe_of(presets.get("ngpt-nano")))["model.alpha_mlp.init"] == 1.6


def test_size_and_chosen_values_are_of_no_kind() -> None:
    run = presets.get("ngpt-nano")
    assert kind_of(run) == (("model.arch", "ngpt"),)
    other = {"model.d_model": 768, "model.n_heads": 12, "optim.lr": 1e-3, "model.s_z.init": 1.0}
    assert kind_of(override(run, other)) == kind_of(run)
    muon = override(run, {"optim.algorithm": "muon", "model.qk_norm": False})
    assert kind_of(muon) == (
        ("model.arch", "ngpt"), ("model.qk_norm", False), ("optim.algorithm", "muon"),
    )  # fmt: skip


def test_coarse_numbers_are_of_another_kind() -> None:
    plain = kind_of(RunConfig())
    assert kind_of(override(RunConfig(), {"train.precision": "bf16"})) == plain
    for field, value in (("train.precision", "fp8"), ("train.weight_storage", "bf16")):
        coarse = kind_of(override(RunConfig(), {field: value}))
        assert set(coarse) - set(plain) == {(field, value)}


def test_a_folder_of_somebody_else_leaves_the_package_alone(tmp_path: Path) -> None:
    before = settings.FILE.read_bytes()
    assert of_records.update(tmp_path) == []
    assert settings.FILE.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "is not a spherelm measurements"),
        ('{"format": "spherelm measurements", "version": 2}', "is of version 2"),
        ('{"format": "spherelm measurements", "version": 1}', "has no 'settings'"),
        (
            '{"format": "spherelm measurements", "version": 1, "settings": [{"lr": 1}]}',
            "a line that is no setting",
        ),
    ],
)
def test_a_damaged_file_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(text)
    with pytest.raises(UserError, match=says) as error:
        read(tmp_path / "measured.json")
    assert "\n" not in str(error.value)
