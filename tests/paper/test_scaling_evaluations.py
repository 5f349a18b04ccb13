"""What `spherelm eval` prints for runs of the study, as tables and a picture of its page."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from spherelm.cli import main
from spherelm.config_io import to_toml
from spherelm.errors import UserError
from spherelm.eval.tasks import AVERAGED
from spherelm.paper import tiny_tasks
from spherelm.paper.scaling import page
from spherelm.paper.scaling.point import Point, rehearsed

pytest.importorskip("lm_eval")

GPT, NGPT = "gpt-4k-46m-linear-lr0.002-s0", "ngpt-4k-46m-linear-lr0.008-s0"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two tiny runs, evaluated by the three verbs."""
    folder = tmp_path_factory.mktemp("study")
    results, runs = folder / "results", folder / "runs"
    command = ["reproduce", "scaling", "--rehearse", "--workers", "0", "--only", f"{GPT},{NGPT}"]
    assert main([*command, "--out", str(runs), "--results", str(results)]) == 0
    (folder / "books").mkdir()
    (folder / "books" / "one.txt").write_text("It was a long road, and nobody walked it. " * 20)
    for name in ("news", "novel"):
        (folder / f"{name}.txt").write_text(f"This is what a {name} says. " * 9)
    both = [str(runs / GPT), str(runs / NGPT)]
    tasks = str(tiny_tasks.write(folder / "tasks"))
    text = [str(folder / f"{name}.txt") for name in ("news", "novel")]
    commands = {
        "tasks": ["tasks", *both, "--tasks", ",".join(AVERAGED), "--data", tasks],
        "length": ["length", *both, "--books", str(folder / "books"), "--lengths", "64", "128"],
        "texts": [*both, "--text", *text],
    }
    target = results / "data" / "evaluations"
    target.mkdir()
    for kind, words in commands.items():
        with (target / f"{kind}.json").open("w") as file, contextlib.redirect_stdout(file):
            assert main(["eval", *words, "--json"]) == 0
    return results


@pytest.fixture
def results(printed: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(printed, tmp_path / "results"))


def found(results: Path, kind: str) -> Any:
    return json.loads((results / "data" / "evaluations" / f"{kind}.json").read_text())


def rows(results: Path, arm: str) -> list[list[str]]:
    page.redraw(results)
    lines = (results / page.PAGE).read_text().splitlines()
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in split if len(row) > 4 and row[3].startswith(arm)]


def test_what_was_printed_is_in_the_tables(results: Path) -> None:
    texts, accuracies, lengths, _ = rows(results, "nGPT")
    _, asked = found(results, "tasks")["models"]
    values = [asked["tasks"][name] for name in AVERAGED]
    assert accuracies[5:10] == [
        f"{100 * v['acc']:.1f} ± {100 * v['acc_stderr']:.1f}" for v in values
    ]
    error = math.sqrt(sum(v["acc_stderr"] ** 2 for v in values)) / 5
    average = 100 * asked["average_accuracy"]
    assert accuracies[10] == f"{average:.1f} ± {100 * error:.1f}"
    bits = [r["bits_per_byte"] for r in found(results, "texts")["results"] if NGPT in r["run"]]
    assert texts[5:] == [f"{value:.4f}" for value in bits]
    _, curve = found(results, "length")["curves"]
    assert lengths[5:] == [f"{value:.1f}" for value in curve["perplexities"]]
    text = (results / page.PAGE).read_text()
    assert "| arm | rate | news | novel |" in text
    assert "(10 of ARC-Easy, 10 of HellaSwag, 10 of" in " ".join(text.split())
    assert "(length-2x32-64.svg)" in text
    assert (results / "length-2x32-64.svg").is_file()
    chart = page.Data.read(results).figures()[-1]
    assert [line.label for line in chart.series] == ["GPT", "nGPT"]
    assert [y for _, y in chart.series[1].points] == curve["perplexities"]


def test_a_later_file_adds_to_an_earlier_one(results: Path) -> None:
    """It has one task of one model, named by its checkpoint."""
    later = found(results, "tasks")
    later["models"] = later["models"][1:]
    (model,) = later["models"]
    model["run"] += "/checkpoints/step_12"
    model["tasks"] = {"wsc273": model["tasks"]["wsc273"] | {"acc": 0.875}}
    before = rows(results, "nGPT")[1]
    (results / "data" / "evaluations" / "tasks-2.json").write_text(json.dumps(later))
    after = rows(results, "nGPT")[1]
    assert after[8].startswith("87.5 ± ")
    assert after[5:8] == before[5:8]
    assert after[10] != before[10]
    assert rows(results, "GPT")[1][8] != after[8]


def test_less_than_five_tasks_have_no_average(results: Path) -> None:
    less = found(results, "tasks")
    for model in less["models"]:
        del model["tasks"]["hellaswag"]
    (results / "data" / "evaluations" / "tasks.json").write_text(json.dumps(less))
    assert rows(results, "nGPT")[1][9:] == ["-"]


def test_what_belongs_to_no_run_is_refused(results: Path) -> None:
    folder = results / "data" / "evaluations"
    (folder / "texts-2.json").write_text(
        json.dumps({"results": [{"run": "runs/other", "text": "news.txt", "bits_per_byte": 1.0}]})
    )
    with pytest.raises(UserError, match="has the run runs/other, and data/scaling no record"):
        page.redraw(results)
    (folder / "texts-2.json").write_text('{"curves": []}')
    with pytest.raises(
        UserError, match=r"texts-2\.json is damaged: it is not what `spherelm eval`"
    ):
        page.redraw(results)


def test_of_the_ablations_only_ngpt_without_qk_norm_has_a_curve(results: Path) -> None:
    """It is an arm, too; another would stand in the place of nGPT's own."""
    later = found(results, "length")
    curve = later["curves"].pop()
    later["curves"].clear()
    for variant in ("no-qk-norm", "slerp"):
        record = results / "data" / "scaling" / f"{NGPT}-{variant}"
        shutil.copytree(results / "data" / "scaling" / NGPT, record)
        point = Point("ngpt", 46, variant=variant)
        assert point.id == record.name
        (record / "config.toml").write_text(to_toml(rehearsed(point.config())))
        later["curves"].append(curve | {"run": f"runs/{record.name}", "perplexities": [7.0, 7.0]})
    (results / "data" / "evaluations" / "length-2.json").write_text(json.dumps(later))
    series = page.Data.read(results).figures()[-1].series
    assert [line.label for line in series] == ["GPT", "nGPT", "nGPT, no QK-norm"]
    assert [y for _, y in series[1].points] == curve["perplexities"]
    assert [row[5:] for row in rows(results, "nGPT, slerp")] == [["7.0", "7.0"]]


def test_of_two_runs_of_an_arm_the_curve_is_that_of_the_better_one(results: Path) -> None:
    """Whatever their names are: two rates may be evaluated."""
    later = found(results, "length")
    curve = later["curves"].pop()
    records = results / "data" / "scaling"
    point = Point("ngpt", 46, lr=16e-3)  # after nGPT's own by name, and it ends higher
    shutil.copytree(records / NGPT, records / point.id)
    (records / point.id / "config.toml").write_text(to_toml(rehearsed(point.config())))
    lines = [json.loads(line) for line in (records / NGPT / "metrics.jsonl").open()]
    lines[-1]["val_loss"] += 0.5
    (records / point.id / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    later["curves"] = [curve | {"run": f"runs/{point.id}", "perplexities": [7.0, 7.0]}]
    (results / "data" / "evaluations" / "length-2.json").write_text(json.dumps(later))
    series = page.Data.read(results).figures()[-1].series
    assert [y for _, y in series[1].points] == curve["perplexities"]
    assert ["7.0", "7.0"] in [row[5:] for row in rows(results, "nGPT")]
