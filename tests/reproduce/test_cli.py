"""`spherelm reproduce`: what it lists and plans, and what it refuses in one line."""

from __future__ import annotations

import dataclasses
import html
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.errors import UserError
from spherelm.model.flops import flops_per_token
from spherelm.paper import registry, scores, sizes
from spherelm.paper.named import named
from spherelm.paper.reproduce import Request, reproduce
from tests.corpus import prepare_corpus

SHOWN = ("nano", "small", "paper")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a call that must be refused says, in one line."""
    assert main(["reproduce", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_the_list_has_every_item_with_its_cost_at_each_size(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    joined = " ".join(shown.split())
    for item in registry.items():
        assert f" {item.name} {item.source}: {item.shows}" in f" {joined}"
    assert "debug" not in shown
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["items"]
    assert [each["item"] for each in listed] == list(registry.NAMES)
    for each in listed:
        assert tuple(each["costs"]) == SHOWN
        trains = each["item"] not in ("parameters", "step-time")
        for cost in each["costs"].values():
            assert (cost["runs"] > 0) == (cost["hours"] > 0) == trains
    # What completes in minutes on two cores cannot be planned to take longer on one.
    assert all(each["costs"]["nano"]["hours"] < 10 / 60 for each in listed)


def test_the_list_is_there_at_once() -> None:
    """Torch, which takes seconds, is not needed to know what there is."""
    program = "import sys; from spherelm.cli import main; main(['reproduce', '--list']); "
    program += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_the_documentation_has_these_items_and_costs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for item in registry.items():
        costs = []
        for size in map(sizes.get, SHOWN):
            jobs = item.jobs(size)
            costs.append(f"{len(jobs)}, {size.amount(sum(map(size.hours, jobs)))}")
        cells = [f"`{item.name}`", item.source, item.shows, *costs]
        assert f"| {' | '.join(cells)} |" in rows


@pytest.mark.parametrize("size", SHOWN)
@pytest.mark.parametrize("item", registry.NAMES)
def test_a_dry_run_has_every_run_with_its_hours(
    item: str, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", item, "--size", size, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    jobs = {job.id: job for job in registry.get(item).jobs(sizes.get(size))}
    assert {run["run"] for run in plan["runs"]} == set(jobs)
    for run in plan["runs"]:
        job = jobs[run["run"]]
        flops = flops_per_token(job.config.model) * job.tokens
        assert run["hours"] == pytest.approx(flops / plan["flops_per_second"] / 3600)
        assert (run["command"] is not None) == (size == "paper")
        assert not run["done"]
    assert plan["hours"] == plan["hours_left"]
    assert plan["hours"] == pytest.approx(sum(run["hours"] for run in plan["runs"]))


def test_a_dry_run_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "ablation-norm", "--size", "paper", "--dry-run", "--tflops", "245"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "GPU-hours" in shown
    assert "0 of 3 runs done" in shown
    assert "245 TFLOP/s" in shown
    assert shown.count("torchrun") == 3
    for job in registry.get("ablation-norm").jobs(sizes.get("paper")):
        assert f"\n# {job.id}: " in shown
        assert f"OUT/runs/{job.id}" in shown


def test_a_dry_run_knows_what_is_done_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["reproduce", "ablation-norm", "--size", "debug", "--out", str(out)]
    assert main([*command, "--only", "*-slerp"]) == 0
    said = capsys.readouterr()
    assert "ablation-norm: 2 of 3 runs not done yet" in said.err
    assert not (out / "ablation-norm").exists()
    before = sorted(out.rglob("*"))
    assert main([*command, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [run["done"] for run in plan["runs"]] == [False, False, True]
    assert plan["hours_left"] < plan["hours"]
    assert sorted(out.rglob("*")) == before


def test_records_of_another_folder_count_where_no_model_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["reproduce", "loss-curve", "--size", "debug", "--out", first]) == 0
    known = ["--records", f"{first}/records"]
    command = ["reproduce", "loss-curve", "--size", "debug", "--out", second, *known]
    assert main([*command, "--dry-run"]) == 0
    assert "2 of 2 runs done" in capsys.readouterr().out
    assert main(command) == 0
    assert "2 of 2 runs done already" in capsys.readouterr().err
    assert (tmp_path / "second/loss-curve/index.html").is_file()
    assert not list((tmp_path / "second/runs").iterdir())
    insides = ["reproduce", "learned-scales", "--size", "debug", "--out", second, *known]
    assert main([*insides, "--dry-run"]) == 0
    assert "0 of 1 run done" in capsys.readouterr().out


def test_what_is_missing_or_wrong_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert "did you mean 'loss-curve'?" in refused(capsys, "loss-curv", "--out", out)
    assert "name what to reproduce: loss-curve, " in refused(capsys)
    assert "--out must be given" in refused(capsys, "loss-curve")
    wrong = refused(capsys, "loss-curve", "--size", "big", "--out", out)
    assert "--size must be one of nano, small, paper, not 'big'" in wrong
    assert refused(capsys, "--list", "--size", "big") == wrong
    for size in ("small", "paper"):
        asked = refused(capsys, "loss-curve", "--size", size, "--out", out)
        assert "--data must be given" in asked
    small = ("--size", "small", "--data", str(tmp_path / "tokens"), "--out", out)
    assert "tasks cannot be made: --tasks-dir must be given" in refused(capsys, "tasks", *small)
    assert "length cannot be made: --books must be given" in refused(capsys, "length", *small)
    nowhere = ("--size", "debug", "--out", out, "--tasks-dir", str(tmp_path / "none"))
    assert "is not a folder" in refused(capsys, "tasks", *nowhere)
    for more in ((), ("--dry-run",)):  # which would count all of their runs as not done
        records = ("--size", "debug", "--out", out, "--records", str(tmp_path / "none"), *more)
        assert "none is not a folder" in refused(capsys, "loss-curve", *records)
    nothing = refused(capsys, "loss-curve", "--size", "debug", "--out", out, "--only", "x*")
    assert "no run is called 'x*'; --dry-run names them all" in nothing
    slow = ("--size", "small", "--device", "cpu", "--out", out)
    needs = "step-time cannot be made: at --size small it needs a CUDA device, not cpu"
    assert needs in refused(capsys, "step-time", *slow)
    assert "--workers must be a whole number" in refused(capsys, "loss-curve", "--workers", "-1")
    assert "--rehearse is for scaling; leave it out" in refused(capsys, "tasks", "--rehearse")
    assert "--size is not for scaling" in refused(capsys, "scaling", "--size", "small")
    assert "--json is not for scaling" in refused(capsys, "scaling", "--list", "--json")
    assert not Path(out).exists()


def test_runs_are_named_by_patterns_in_their_order_each_once() -> None:
    runs = ["gpt-1", "gpt-2", "ngpt-1"]
    assert named(runs, "*", str, "--list") == runs
    assert named(runs, "ngpt-*, gpt-*,gpt-1", str, "--list") == ["ngpt-1", "gpt-1", "gpt-2"]
    assert named([], "x", str, "--list") == []  # an item without runs
    with pytest.raises(UserError, match="no run is called 'x'; --list names them all"):
        named(runs, "gpt-*,x", str, "--list")


def test_what_a_gpu_sustains_is_said_of_gpus_alone(capsys: pytest.CaptureFixture[str]) -> None:
    hours = []
    for more in ([], ["--tflops", "37"]):
        assert main(["reproduce", "loss-curve", "--list", "--json", *more]) == 0
        (item,) = json.loads(capsys.readouterr().out)["items"]
        hours.append({size: cost["hours"] for size, cost in item["costs"].items()})
    assert hours[1]["nano"] == hours[0]["nano"]
    assert hours[1]["small"] == pytest.approx(10 * hours[0]["small"])


def test_a_folder_is_of_one_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("parameters", "--size", "debug", "--out", str(tmp_path / "out"))
    assert main(["reproduce", *out]) == 0
    capsys.readouterr()
    said = refused(capsys, *out, "--data", str(prepare_corpus(tmp_path)))
    assert "holds runs on other data than" in said


def test_a_folder_is_of_one_size_and_of_nobody_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", "parameters", "--size", "debug", "--out", str(out)]) == 0
    assert "0 of 0" not in capsys.readouterr().err  # nothing has to be trained
    capsys.readouterr()
    other = refused(capsys, "parameters", "--size", "nano", "--out", str(out))
    assert "holds reproductions at --size debug, not nano; choose another --out" in other
    (out / "mine.txt").write_text("mine")
    assert "holds mine.txt" in refused(capsys, "parameters", "--size", "debug", "--out", str(out))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "paper.tex").write_text("")
    assert "paper.tex" in refused(capsys, "parameters", "--size", "debug", "--out", str(theirs))
    assert sorted(p.name for p in theirs.iterdir()) == ["paper.tex"]


def test_pages_are_drawn_again_without_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    redraw = ["reproduce", "loss-curve", "--size", "debug", "--out", out, "--redraw"]
    assert main(redraw) == 0
    assert "loss-curve: 2 of 2 runs not done yet" in capsys.readouterr().err
    assert main(redraw[:-1]) == 0
    page = tmp_path / "out/loss-curve/index.html"
    page.unlink()
    assert main(redraw) == 0
    assert page.is_file()


def test_runs_of_a_cluster_are_drawn_though_nobody_kept_their_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["reproduce", "loss-curve", "--size", "debug", "--out", str(out)]
    assert main(command) == 0
    for more in (["--redraw"], ["--only", "gpt-*"]):
        shutil.rmtree(out / "records")  # as if each had been a `spherelm train` by itself
        assert main([*command, *more]) == 0
    assert len(list((out / "records").iterdir())) == 2


def test_a_harness_that_is_missing_is_said_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "has_harness", lambda: False)
    out = tmp_path / "out"
    assert "spherelm[eval]" in refused(capsys, "tasks", "--size", "debug", "--out", str(out))
    assert not out.exists()
    command = ["reproduce", "ablation-norm", "--size", "debug", "--out", str(out), "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    names = [(c["name"], c["whose"]) for c in found["tables"][0]["columns"]]
    place = names.index(("average accuracy", "ours"))
    assert [row[place] for row in found["tables"][0]["rows"]] == [None] * 3
    assert scores.NOT_SCORED in found["notes"]


def test_what_cannot_be_made_here_is_left_out_and_named(tmp_path: Path) -> None:
    """As of `all` at small without a CUDA device, tasks or books: the rest is made."""
    small = dataclasses.replace(sizes.get("debug"), name="small", built_in=False)
    items = [registry.get(name) for name in ("loss-curve", "tasks", "step-time", "length")]
    data, out, said = str(prepare_corpus(tmp_path)), tmp_path / "out", list[str]()
    request = Request(items, small, out, data=data, device="cpu")
    assert reproduce(request, said.append) == [out / "loss-curve"]
    page = html.unescape((out / "index.html").read_text())
    begun = next(i for i, line in enumerate(said) if "done already" in line)
    for name, needs in (
        ("tasks", "--tasks-dir must be given"),
        ("step-time", "at --size small it needs a CUDA device, not cpu"),
        ("length", "--books must be given"),
    ):
        line = f"{name} is left out: {needs}"
        assert [line in each for each in said].count(True) == 2
        assert any(line in each for each in said[:begun])  # before hours are spent
        assert line in page
        assert not (out / name).exists()
    # No runs were trained that they alone have.
    trained = {path.name for path in (out / "runs").iterdir() if path.is_dir()}
    assert trained == {job.id for job in items[0].jobs(small)}


def test_processes_of_their_own_leave_what_this_one_leaves(tmp_path: Path) -> None:
    """A run inside a folder that the calling process holds; the same metrics to the bit."""
    found = []
    for workers in ("0", "2"):
        out = tmp_path / workers
        command = ["reproduce", "loss-curve", "--size", "debug", "--only", "gpt-*"]
        assert main([*command, "--out", str(out), "--workers", workers]) == 0
        (metrics,) = (out / "records").glob("*/metrics.jsonl")
        found.append(metrics.read_bytes())
        assert not (out / ".spherelm").exists()  # nobody holds it any more
    assert found[0] == found[1]
    assert found[0]


def test_a_page_names_its_data_also_where_the_call_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = dataclasses.replace(sizes.get("debug"), built_in=False)
    data, out = prepare_corpus(tmp_path).rename(tmp_path / "mine"), tmp_path / "out"
    request = Request([registry.get("loss-curve")], size, out, data=str(data))

    def told(request: Request) -> str:
        reproduce(request, lambda line: None)
        found: str = json.loads((out / "loss-curve" / "result.json").read_text())["data"]
        return found

    assert told(request) == "mine"
    assert told(dataclasses.replace(request, data=None)) == "mine"
    monkeypatch.chdir(data)
    assert told(dataclasses.replace(request, data=".")) == "mine"
