"""The study's harness: what is run, what is kept, and the page that is drawn from it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spherelm.cli import main
from spherelm.config_io import to_toml
from spherelm.errors import UserError
from spherelm.paper import fit, store
from spherelm.paper.runner import Runner
from spherelm.paper.scaling import arms, grid, identity, needed, page
from spherelm.paper.scaling.chance import noises
from spherelm.paper.scaling.grid import GRID
from spherelm.paper.scaling.identity import Place, first
from spherelm.paper.scaling.point import SMALL, TOKENS_PER_STEP, Point
from spherelm.plots import svg

ROOT = Path(__file__).parents[2]
LAW = fit.PowerLaw(E=2.5, A=90.0, b=0.25)
BUDGETS = (46, 92, 184, 368)
KINDS = ("E_input", "E_output", "factors")


def made_up(folder: Path, point: Point, loss: float, finished: bool = True) -> None:
    """A record as a run would leave it, with the loss given."""
    target = folder / point.id
    target.mkdir(parents=True)
    config = point.config()
    (target / "config.toml").write_text(to_toml(config))
    half, whole = config.train.steps // 2, config.train.steps
    lines = [
        {"step": step, "tokens": step * TOKENS_PER_STEP, "val_loss": value}
        for step, value in ((half, loss + 0.5), (whole if finished else half + 1, loss))
    ]
    (target / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (target / "result.json").write_text(json.dumps({"finished": finished, "seconds": 80.0}))


def tokens(millions: int) -> int:
    return Point("gpt", millions).steps * TOKENS_PER_STEP


# --- the grid ------------------------------------------------------------------------------------


def test_every_run_has_a_name_of_its_own_and_a_sound_configuration() -> None:
    assert len({point.id for point in GRID}) == len(GRID)
    for point in GRID:
        run = point.config()
        assert run.tokens_per_step == 65_536
        assert run.train.steps * 65_536 == pytest.approx(point.millions * 1e6, rel=2e-3)
        assert run.optim.schedule == point.schedule
        if not point.variant:
            assert identity.arm_of(run) == point.arm
        assert identity.variant_of(point.id) == point.variant


def test_the_baseline_is_not_handicapped() -> None:
    """The init, warmup and decay with which GPT ends best, and the schedules that nGPT has."""
    gpt = Point("gpt", 92).config()
    assert gpt.model.init_std == pytest.approx(1 / math.sqrt(512))
    assert (gpt.optim.warmup_steps, gpt.optim.weight_decay) == (140, 0.1)
    offered = {
        arm: {(p.millions, p.schedule) for p in GRID if p.arm == arm} for arm in ("gpt", "ngpt")
    }
    assert offered["gpt"] == offered["ngpt"]


def test_a_kinds_rate_that_helped_is_tried_with_more_tokens() -> None:
    """Of whatever arm: else only those whose changes are carried on would be tuned further."""
    kept = store.read(ROOT / "docs" / "results" / "data" / "scaling")
    losses = {record.id: record.loss for record in kept if record.finished}
    by_chance = noises(kept)[PLACE].below(1)
    offered = {(point.arm, point.millions, point.tuned) for point in GRID}
    helped = 0
    for point in GRID:
        if point.millions == 46 and point.tuned and point.tuned[-1][0] in KINDS:
            base = dataclasses.replace(point, tuned=point.tuned[:-1])
            if losses.get(point.id, math.inf) < losses.get(base.id, 0.0) - by_chance:
                helped += 1
                longer = {(point.arm, millions, point.tuned) for millions in (92, 184)}
                assert longer <= offered, point.id
    assert helped


def test_the_best_baseline_is_offered_what_its_rival_is() -> None:
    """Whichever it is: rates on both sides of its best one, and neighbours of its own values."""
    ends = needed.Ends.of(store.read(ROOT / "docs" / "results" / "data" / "scaling"))
    found = needed.answer(ends, PLACE)
    assert found is not None
    offered = {}
    for arm in (found.of_best.end.arm, found.of_gpt.arm):
        here = [p for p in GRID if (p.arm, p.millions, p.size, p.context) == (arm, 92, *PLACE)]
        (at_92,) = (b for b in ends.at(PLACE) if (b.arm, b.tokens) == (arm, tokens(92)))
        best = first(at_92.runs).config.optim.lr
        rates = {p.peak for p in here}
        assert min(rates) < best < max(rates), arm
        offered[arm] = {(p.peak, p.muon_lr, p.tuned) for p in here}
    theirs, ours = offered.values()
    assert len(theirs) >= len(ours)


def test_names_are_chosen_by_pattern() -> None:
    assert {p.arm for p in grid.chosen("ngpt-4k-46m-*")} == {"ngpt"}
    both = grid.chosen("ngpt-4k-368m-*-s0, gpt-4k-46m-*")
    assert [p.arm for p in both] == sorted((p.arm for p in both), reverse=True)  # as they are asked
    assert {p.millions for p in both} == {368, 46}
    with pytest.raises(UserError, match="no run is called 'ngtp"):
        grid.chosen("ngtp*")


def test_tuned_values_carry_over_to_other_sizes() -> None:
    small, large = (
        Point("gpt", 92, size=size, tuned=(("init", 0.5), ("final", 0.1))).config()
        for size in (SMALL, "12x768")
    )
    assert small.model.init_std == pytest.approx(0.5 / math.sqrt(512))
    assert large.model.init_std == pytest.approx(0.5 / math.sqrt(768))
    assert small.optim.final_lr == pytest.approx(4e-4)
    ngpt = Point("ngpt", 92, size="12x768", tuned=(("alpha", 2.0),)).config().model
    assert ngpt.alpha_attn.init == ngpt.alpha_mlp.init == pytest.approx(2 / 12)


PLACE = Place(SMALL, 4096)
"""Where values are tuned; other contexts and sizes take over what was best there."""


def test_every_arm_is_tuned_by_as_many_runs() -> None:
    tuned = [p for p in GRID if p.tuned and p.millions == 46 and (p.size, p.context) == PLACE]
    counts = {arm: sum(p.arm == arm for p in tuned) for arm in arms.LEADERS}
    assert len(set(counts.values())) == 1, counts
    for size, context in {(p.size, p.context) for p in GRID if p.size in (SMALL, "12x768")}:
        plain = [p for p in GRID if (p.size, p.context) == (size, context) and not p.variant]
        for pair in (arms.BOTH, arms.LEADERS[2:]):
            one, other = (
                {identity.setting_of(p.id)[0] for p in plain if p.arm == arm} for arm in pair
            )
            assert len(one) == len(other), (size, context, pair)


def test_every_record_is_a_run_of_the_grid() -> None:
    """Whoever wants to repeat one finds it by its name."""
    names = {point.id for point in GRID}
    kept = {record.id for record in store.read(ROOT / "docs" / "results" / "data" / "scaling")}
    assert kept
    assert kept <= names


# --- records, tables, figures --------------------------------------------------------------------


def test_the_page_is_drawn_from_the_records(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "scaling"
    for millions in BUDGETS:
        made_up(folder, Point("gpt", millions), LAW.loss(tokens(millions)))
    made_up(folder, Point("gpt", 92, lr=1e-3), 9.0)  # a worse rate: not what is compared
    made_up(folder, Point("ngpt", 92), LAW.loss(2 * tokens(92)))
    made_up(folder, Point("ngpt-muon", 92), 2.0, finished=False)  # below all, and never ended
    made_up(folder, Point("gpt-qk", 92), 4.0)  # one budget: no baseline yet
    made_up(folder, Point("gpt", 46, tuned=(("init", 0.45), ("warmup", 0.2))), 5.0)
    made_up(folder, Point("ngpt", 92, size="12x768"), 3.0)
    (tmp_path / page.PAGE).write_text(f"above\n{page.BEGIN}\nof before\n{page.END}\nbelow\n")
    paths = page.redraw(tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "of before" not in text
    lines = text.splitlines()
    (row,) = (line for line in lines if line.startswith("| 8x512 | 4k | GPT | nGPT | 92M"))
    assert not any(line.startswith("| 8x512 | 4k | GPT, QK-norm | nGPT") for line in lines)
    assert "| 8x512 | 4k | 46M | GPT, init 0.45, warmup 0.2 | linear |" in text
    assert float(row.split("|")[9]) == pytest.approx(2.0, abs=0.03)
    assert "one seed" in row
    assert "| nGPT, Muon | linear | 0.008, Muon 0.008 | 0 | did not finish |" in text
    assert "8x512 and 4k, seeds apart. GPT: 6; GPT, QK-norm: 1; nGPT: 1." in text
    pictures = {"scaling-4k.svg", "curves-4k.svg", "rates-4k.svg"}
    pictures.add("curves-12x768-4k.svg")  # a line of ends has two, and one rate is no picture
    assert {p.name for p in paths} == {page.PAGE, *pictures}
    before = text
    page.redraw(tmp_path)
    assert (tmp_path / page.PAGE).read_text() == before


def test_recipes_of_one_budget_are_no_curves_but_differences(tmp_path: Path) -> None:
    """Each beside what chance does, which seeds at any budget tell."""
    folder = tmp_path / "data" / "scaling"
    for seed, loss in enumerate((3.64, 3.66)):  # a deviation of 0.0141, one degree of freedom
        made_up(folder, Point("ngpt", 92, seed=seed), loss)
    made_up(folder, Point("ngpt", 46), 4.0)
    made_up(folder, Point("ngpt", 46, lr=4e-3), 4.1)  # a rate is no such change
    made_up(folder, Point("ngpt", 46, "wsd"), 4.15)
    made_up(folder, Point("ngpt-tied", 46), 3.99)
    made_up(folder, Point("ngpt", 46, tuned=(("s_z", 20.0),)), 4.01)
    made_up(folder, Point("gpt-tied", 46), 4.3)  # GPT itself was not run
    paths = page.redraw(tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    table = text.partition("What a change does")[2].partition("Every run")[0]
    rows = [line.split(" | ")[3:] for line in table.splitlines() if line.startswith("| 8x512")]
    assert [[*row[:2], row[3], *row[5:7]] for row in rows] == [
        ["nGPT", "linear", "wsd", "**+0.150**", "0.126"],
        ["nGPT", "linear", "s_z 20", "+0.010", "0.126"],
        ["nGPT", "linear", "tied embeddings", "-0.010", "0.126"],
    ]
    for figure in page.Data.read(tmp_path).figures():
        assert [line.label for line in figure.series] == ["nGPT"]
    # Nobody has put the pictures anywhere: they stand among the tables.
    assert {p.name for p in paths} == {
        page.PAGE,
        "scaling-4k.svg",
        "curves-4k.svg",
        "rates-4k.svg",
    }
    assert "(scaling-4k.svg)" in text
    assert page.written({tmp_path: text}, page.Data.read(tmp_path)) == {tmp_path: text}
    made_up(folder, Point("ngpt-tied", 92), 3.5)
    tied = page.Data.read(tmp_path).figures()[0].series[1]
    assert (tied.label, tied.dotted, tied.role) == ("nGPT, tied embeddings", True, "ngpt")
    # It stands beside the others wherever it was run, also with one budget there.
    for arm in ("ngpt", "ngpt-tied", "ngpt-lgp"):
        made_up(folder, Point(arm, 92, context=8192), 3.5)
    (curves,) = [c for c in page.Data.read(tmp_path).figures() if c.name == "curves-8k"]
    assert [line.label for line in curves.series] == ["nGPT", "nGPT, tied embeddings"]


def test_a_recipe_with_other_values_stands_against_its_base_with_the_same(tmp_path: Path) -> None:
    values: dict[str, Any] = {"lr": 16e-3, "tuned": (("momentum", 0.9),)}
    made_up(tmp_path / "data" / "scaling", Point("gpt-qk-muon", 92, **values), 3.6)
    made_up(tmp_path / "data" / "scaling", Point("gpt-qk-muon-tied", 92, **values), 3.5)
    page.redraw(tmp_path)
    table = (tmp_path / page.PAGE).read_text().partition("What a change does")[2]
    (row,) = [line for line in table.splitlines() if "| tied embeddings |" in line]
    assert "| GPT, QK-norm, Muon, momentum 0.9 |" in row
    assert "| 3.500 | -0.100 |" in row


def test_settings_are_compared_on_the_seeds_that_all_have(tmp_path: Path) -> None:
    for seed, loss in enumerate((3.9, 4.2, 4.2)):
        made_up(tmp_path, Point("gpt", 92, seed=seed), loss)
    made_up(tmp_path, Point("gpt", 92, lr=2e-3), 4.0)  # below the mean of three, above seed 0
    (found,) = needed.Ends.of(store.read(tmp_path)).bests
    assert {run.config.optim.lr for run in found.runs.values()} == {4e-3}
    assert found.loss == pytest.approx(4.1)


def test_two_settings_of_three_seeds_are_compared_on_all_three(tmp_path: Path) -> None:
    """Although a third setting has the first seed alone."""
    for lr, losses in ((4e-3, (3.97, 4.03, 4.03)), (8e-3, (3.98, 4.0, 4.02))):
        for seed, loss in enumerate(losses):
            made_up(tmp_path, Point("gpt", 92, lr=lr, seed=seed), loss)
    made_up(tmp_path, Point("gpt", 92, lr=2e-3), 4.2)
    (found,) = needed.Ends.of(store.read(tmp_path)).bests
    assert {run.config.optim.lr for run in found.runs.values()} == {8e-3}
    assert found.loss == pytest.approx(4.0)


@pytest.mark.parametrize(("alone", "lr"), [(3.97, 4e-3), (3.9, 2e-3)])
def test_one_seed_wins_against_several_by_more_than_chance_alone(
    tmp_path: Path, alone: float, lr: float
) -> None:
    """A deviation of 0.01 from two degrees of freedom: by chance 0.041."""
    for seed, loss in enumerate((4.0, 3.99, 4.01)):
        made_up(tmp_path, Point("gpt", 92, seed=seed), loss)
    made_up(tmp_path, Point("gpt", 92, lr=2e-3), alone)
    (found,) = needed.Ends.of(store.read(tmp_path)).bests
    assert {run.config.optim.lr for run in found.runs.values()} == {lr}


def test_less_is_beyond_chance_between_settings_that_share_more_seeds(tmp_path: Path) -> None:
    """A deviation of 0.009 from five degrees of freedom: by chance 0.025 of one seed, 0.015 of the
    three that both have."""
    for lr, ends in ((2e-3, (3.97, 3.98, 3.99)), (4e-3, (3.99, 4.0, 4.01, 4.0))):
        for seed, loss in enumerate(ends):
            made_up(tmp_path, Point("gpt", 92, lr=lr, seed=seed), loss)
    (found,) = needed.Ends.of(store.read(tmp_path)).bests
    assert {run.config.optim.lr for run in found.runs.values()} == {2e-3}


def test_a_change_is_told_beside_the_nearest_run_without_it(tmp_path: Path) -> None:
    """Two values are compared with the first one alone, where that was run."""
    folder = tmp_path / "data" / "scaling"
    quick, wide = ("momentum", 0.9), ("init", 0.45)
    for tuned, loss in (((), 4.1), ((quick,), 3.97), ((quick, wide), 3.95), ((wide,), 4.04)):
        made_up(folder, Point("gpt-qk-muon", 46, tuned=tuned), loss)
    made_up(folder, Point("ngpt", 92), 3.65)
    made_up(folder, Point("ngpt", 92, tuned=(("s_z", 1.0), ("alpha", 0.4))), 3.72)
    page.redraw(tmp_path)
    table = (tmp_path / page.PAGE).read_text().partition("What a change does")[2]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| 8x512")]
    assert [[row[3], row[6], row[8]] for row in rows[:4]] == [
        ["GPT, QK-norm, Muon", "init 0.45", "-0.060"],
        ["GPT, QK-norm, Muon", "momentum 0.9", "-0.130"],
        ["GPT, QK-norm, Muon, momentum 0.9", "init 0.45", "-0.020"],
        ["nGPT", "s_z 1, alpha 0.4", "+0.070"],
    ]


def test_a_run_that_diverged_before_it_was_evaluated_was_tried(tmp_path: Path) -> None:
    """It has no loss to be ranked by, and counts among the settings that its arm was given."""
    folder = tmp_path / "data" / "scaling"
    high = Point("gpt", 92, lr=8e-3)
    for point in (Point("gpt", 92), high, Point("ngpt", 92)):
        made_up(folder, point, 3.9)
    (folder / high.id / "metrics.jsonl").write_text("")
    ended = {"finished": False, "diverged": True, "seconds": 3.0}
    (folder / high.id / "result.json").write_text(json.dumps(ended))
    page.redraw(tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    assert "GPT: 2; nGPT: 1." in text
    (row,) = [line for line in text.splitlines() if "| 0.008 | 0 | diverged | 3 |" in line]
    assert row.startswith("| 8x512 | 4k | 92M | GPT |")


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        page.redraw(tmp_path)
    made_up(tmp_path / "data" / "scaling", Point("gpt", 46), 4.0)
    (tmp_path / page.PAGE).write_text("no marks\n")
    with pytest.raises(UserError, match="has no lines"):
        page.redraw(tmp_path)


def test_a_section_with_a_place_of_its_own_is_not_among_the_rest(tmp_path: Path) -> None:
    """People put a table beside what they say of it; every other one is on the page of tables."""
    made_up(tmp_path / "data" / "scaling", Point("gpt", 92), 3.9)
    made_up(tmp_path / "data" / "scaling", Point("gpt", 92, lr=2e-3), 4.0)
    beside, rest = tmp_path / page.PAGE, tmp_path / page.TABLES
    beside.write_text(f"# A\n\nrates:\n\n<!-- scaling: rates -->\n{page.END}\n\nsaid of them\n")
    rest.write_text(f"# B\n\n{page.BEGIN}\n{page.END}\n")
    page.redraw(tmp_path)
    assert "| 0.002 | 0.004 | inside |" in beside.read_text()
    assert beside.read_text().endswith("said of them\n")
    assert "inside" not in rest.read_text()
    titles = re.findall("^## (.*)", rest.read_text(), re.MULTILINE)
    assert titles == ["How many settings each arm was given", "Every run"]
    beside.write_text(
        f"# A\n\n<!-- scaling: rates -->\n\nsaid of them\n\n{page.BEGIN}\n{page.END}\n"
    )
    with pytest.raises(UserError, match="has no <!-- scaling: end --> of its own; add it"):
        page.redraw(tmp_path)
    assert "said of them" in beside.read_text()  # which was deleted with what stood between
    beside.write_text(f"# A\n\n<!-- scaling: rtaes -->\n{page.END}\n")
    with pytest.raises(UserError, match="no table is called 'rtaes'; there are rates"):
        page.redraw(tmp_path)


def test_the_page_in_the_repository_is_that_of_its_data() -> None:
    results = ROOT / "docs" / "results"
    data = page.Data.read(results)
    assert data.records
    pages = page.read_pages(results)
    assert len(pages) == 3
    assert page.written(pages, data) == pages
    for figure in data.figures():
        picture = (results / f"{figure.name}.svg").read_text()
        assert picture == svg.draw_file(figure)
        ElementTree.fromstring(picture)
        assert f"({figure.name}.svg)" in "".join(pages.values())


def test_shares_and_factors_told_in_words_are_those_of_the_tables() -> None:
    """What people wrote on the study's page, of runs that have since been joined by others."""
    words, tables, _ = page.read_pages(ROOT / "docs" / "results").values()
    words = " ".join(words.split())
    told = re.findall(r"(\d\.\d\d)\**(?: times as many)? \((\d\.\d\d) to (\d\.\d\d)\b", words)
    assert len(told) > 10
    for value, low, high in told:
        assert f"| {value} | {low} to {high} |" in tables, f"{value} ({low} to {high})"
    losses = re.findall(r"\b[34]\.\d{3}\b", words)
    assert len(losses) > 50
    shown = set(re.findall(r"\| (?:\*\*)?([34]\.\d{3})", tables))
    assert set(losses) <= shown, set(losses) - shown


def test_leads_at_other_contexts_and_in_the_larger_model_are_those_of_the_records() -> None:
    """Differences of the losses themselves, which those of rounded ones are not always."""
    results = ROOT / "docs" / "results"
    losses = {record.id: record.loss for record in page.Data.read(results).records}
    columns = (
        ("1k", "0.004", "0.016", "0.008"),
        ("4k", "0.004", "0.016", "0.008"),
        ("8k", "0.004", "0.016", "0.008"),
        ("12x768-4k", "0.00283", "0.0113", "0.00566"),
    )
    leads: dict[str, list[str]] = {
        "GPT": [],
        "GPT with QK-norm and Muon": [],
        "the best baseline": [],
    }
    for place, plain, muon, ours in columns:
        ids = (
            f"gpt-{place}-92m-linear-lr{plain}-decay0.3-s0",
            f"gpt-qk-muon-{place}-92m-linear-lr{muon}-momentum0.9-s0",
            f"gpt-qk-muon-tied-{place}-92m-linear-lr{muon}-momentum0.9-s0",
        )
        ngpt = losses[f"ngpt-muon-{place}-92m-linear-lr{ours}-s0"]
        for lead, baseline in zip(leads.values(), ids, strict=True):
            if baseline in losses:
                lead.append(f"{losses[baseline] - ngpt:.3f}".replace("-", "−"))
    told = (results / page.PAGE).read_text()
    for name, lead in leads.items():
        assert f"| its lead over {name} | {' | '.join(lead)} |" in told


def test_what_a_spread_of_all_but_the_plain_gpt_would_say() -> None:
    """The page's words of how much rests on one spread for all arms."""
    data = page.Data.read(ROOT / "docs" / "results")
    others = [record for record in data.records if identity.arm_of(record.config) != "gpt"]
    ends = dataclasses.replace(needed.Ends.of(data.records), noises=noises(others))
    of_tied = {b.tokens: b for b in ends.at(PLACE) if b.arm == "gpt-qk-muon-tied"}
    found = {}
    for tokens_of, end in of_tied.items():
        reached = ends.needed("ngpt-muon", end)
        assert reached is not None
        found[round(tokens_of / 1e6)] = reached.reading.interval()
    words = " ".join((ROOT / "docs" / "results" / page.PAGE).read_text().split())
    assert f"from {found[92]} of the tied baseline's tokens at 92M" in words
    assert f"from {found[184]} at 184M and from {found[368]} at 368M (a test)" in words


# --- runs ----------------------------------------------------------------------------------------


def test_a_rehearsal_trains_keeps_skips_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tiny runs, each a process of its own; the second call finds nothing left to do."""
    command = [
        "reproduce",
        "scaling",
        "--rehearse",
        "--only",
        "gpt-muon-4k-92m-linear-lr0.002-s0,ngpt-muon-4k-92m-linear-lr0.008-s0",
    ]
    command += ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "0 of 2 runs done already" in said
    assert "0 runs left" in said
    for record in store.read(tmp_path / "results" / "data" / "scaling"):
        assert record.finished
        assert record.config.optim.algorithm == "muon"
        assert record.config.data.path is None
        assert [tokens for tokens, _ in record.curve] == [1024, 2048, 3072]
        assert 0 < record.loss < math.log(257)
        assert record.made_with["torch"]
    assert main(command) == 0
    assert "2 of 2 runs done already" in capsys.readouterr().out
    assert main([*command, "--list"]) == 0
    assert capsys.readouterr().out.count("done") == 2


def test_what_is_missing_is_said_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "scaling", "--out", str(tmp_path / "runs")]) == 2
    assert "--data must be given" in capsys.readouterr().err
    assert main(["reproduce", "scaling", "--data", str(tmp_path)]) == 2
    assert "--out must be given" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_begun_that_would_not_end_in_time(tmp_path: Path) -> None:
    said: list[str] = []
    jobs = [Point("gpt", 46).job()]
    runner = Runner(jobs, None, tmp_path, tmp_path / "records", seconds=0.0, say=said.append)
    assert runner.run() == 1
    assert said[-1] == "out of time: 1 run left"
    assert Runner([], None, tmp_path, tmp_path / "records").run() == 0
