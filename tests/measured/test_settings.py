"""What was tried, as the package has it: the records', no more and no less."""

from __future__ import annotations

from pathlib import Path

import pytest

from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.measured import settings
from spherelm.measured.settings import gather, kind_of, measured, read, recipe_of, to_json
from spherelm.paper import store
from spherelm.paper.scaling import page
from spherelm.paper.scaling import settings as of_records
from spherelm.paper.scaling.grid import GRID, Point

ROOT = Path(__file__).parents[2]
AGAIN = "`spherelm reproduce scaling --redraw` writes it again"


def test_the_package_has_what_the_records_say() -> None:
    tried = of_records.tried(ROOT / "docs" / "results")
    assert settings.FILE.read_text() == to_json(tried), AGAIN
    assert read() == tried
    records = [r for r in store.read(of_records.OURS / "data" / "scaling") if r.finished]
    study = [s for s in measured() if s.page.endswith("headline.md")]
    losses = sorted(loss for setting in study for _, loss in setting.losses)
    assert losses == pytest.approx(sorted(r.loss for r in records), abs=1e-6)  # as it is rounded
    assert {dict(s.kind)["model.arch"] for s in measured()} == {"gpt", "ngpt"}


def test_seeds_are_one_setting_and_all_else_is_not() -> None:
    points = [p for p in GRID if p.muon_lr is None or p.muon_lr != p.peak]
    found = gather((point.config(), "page", 3.0 + point.seed) for point in points)
    assert len(found) == len({point.id.rpartition("-s")[0] for point in points})
    seeds = {setting.losses for setting in found}
    assert ((0, 3.0), (1, 4.0), (2, 5.0)) in seeds


def test_budgets_share_a_recipe_and_arms_do_not_share_a_kind() -> None:
    """Steps are rounded to whole ones: the share of the warmup is not."""
    for arm in ("gpt", "ngpt"):
        recipes = {recipe_of(Point(arm, millions).config()) for millions in (46, 92, 184, 368)}
        assert len(recipes) == 1
    gpt, ngpt = (dict(recipe_of(Point(arm, 92).config())) for arm in ("gpt", "ngpt"))
    assert gpt["optim.warmup_steps"] == 0.1
    assert gpt["model.init_std"] == 1.0  # over sqrt(d_model)
    assert ngpt["model.alpha_attn.init"] == 1.0  # over n_layers
    kinds = {page.arm_of(p.config()): kind_of(p.config()) for p in GRID}
    assert len(set(kinds.values())) == len(kinds)
    other_size = override(Point("ngpt", 92).config(), {"model.d_model": 768, "optim.lr": 1e-3})
    assert kind_of(other_size) == kinds["ngpt"]


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
