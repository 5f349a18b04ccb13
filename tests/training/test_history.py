"""`spherelm report`: runs on one page, finished or under way."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import statistics
from html import escape
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.data.tokenizer_library import LibraryTokenizer
from spherelm.errors import UserError
from spherelm.runs.metrics import read_metrics
from spherelm.saved import find_saved
from spherelm.training.loop import train
from spherelm.training.report.history import read_history
from spherelm.training.report.history_charts import (
    MOST_RUNS,
    appearances,
    factor_charts,
    loss_charts,
    optimizer_charts,
)
from spherelm.training.report.history_page import render
from spherelm.training.report.samples import validation_prompt
from tests.compare.test_report import LOADS, Tags
from tests.training.conftest import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> dict[str, Path]:
    root, dataset = tmp_path_factory.mktemp("runs"), open_dataset(corpus)
    made = {name: root / name for name in ("gpt", "ngpt", "after")}
    train(tiny("gpt"), dataset, made["gpt"])
    train(tiny("ngpt"), dataset, made["ngpt"])
    slower = override(tiny("ngpt"), {"optim.lr": 0.00123})
    train(slower, dataset, made["after"], init_from=find_saved(made["ngpt"]))
    return made


def page(*folders: Path) -> str:
    return render([read_history(str(folder)) for folder in folders])


def test_the_page_is_whole_and_asks_for_nothing(runs: dict[str, Path]) -> None:
    for html in (page(runs["gpt"]), page(*runs.values())):
        assert LOADS.search(html) is None
        tags = Tags()
        tags.feed(html)
        assert tags.open == []
        ids = re.findall(r'\bid="([^"]+)"', html)
        assert len(ids) == len(set(ids))


def test_curves_are_those_of_the_metrics(runs: dict[str, Path]) -> None:
    shown = appearances([read_history(str(runs["ngpt"]))])
    metrics = read_metrics(runs["ngpt"] / "metrics.jsonl")
    seconds = [line["seconds"] for line in read_metrics(runs["ngpt"] / "speed.jsonl")]
    by_name = {chart.name: chart for chart in (*loss_charts(shown), *factor_charts(shown))}
    (line,) = by_name["loss-tokens"].series
    assert line.points == [(m["tokens"], m["loss"]) for m in metrics]
    (line,) = by_name["loss-time"].series
    assert [x for x, _ in line.points] == pytest.approx([sum(seconds[:n]) for n in range(1, 13)])
    evaluated = [m for m in metrics if "val_loss" in m]
    (line,) = by_name["val_loss-tokens"].series
    assert [y for _, y in line.points] == [m["val_loss"] for m in evaluated]
    (line,) = by_name["alpha_mlp"].series
    assert [y for _, y in line.points] == pytest.approx(
        [sum(m["alpha_mlp"]) / 2 for m in evaluated]
    )
    rate, norm = (chart.series[0].points for chart in optimizer_charts(shown))
    assert [y for _, y in rate] == [m["lr"] for m in metrics]
    assert [y for _, y in norm] == [m["grad_norm"] for m in metrics]


def test_a_beginning_above_the_picture_is_told(runs: dict[str, Path]) -> None:
    """Losses are shown up to the highest after a fifth of the run."""
    charts = loss_charts(appearances([read_history(str(runs["ngpt"]))]))
    said = [chart.cut for chart in charts if chart.cut]
    assert said
    assert page(runs["ngpt"]).count("are cut off") == len(said)


def test_a_run_after_its_first_step_can_be_seen(runs: dict[str, Path]) -> None:
    history = read_history(str(runs["ngpt"]))
    first = dataclasses.replace(history, metrics=history.metrics[:1])
    shown = {chart.name: chart for chart in loss_charts(appearances([history, first]))}
    assert [line.dots for line in shown["loss-tokens"].series] == [False, True]


def test_a_folder_of_runs_names_them(runs: dict[str, Path]) -> None:
    """Such as that of a comparison."""
    around = runs["gpt"].parent
    with pytest.raises(UserError, match=rf"holds no run .*; give runs in it: {around}/\w+, "):
        read_history(str(around))


def test_a_long_curve_is_made_of_means(runs: dict[str, Path]) -> None:
    history = read_history(str(runs["gpt"]))
    losses = [line["loss"] for line in history.metrics]
    points = history.curve("loss", lambda line: line["step"], most=4)
    assert [x for x, _ in points] == [3, 6, 9, 12]
    assert [y for _, y in points] == pytest.approx(
        [sum(losses[n : n + 3]) / 3 for n in range(0, 12, 3)]
    )


def test_it_says_what_differs_and_what_it_began_with(runs: dict[str, Path]) -> None:
    html = page(runs["ngpt"], runs["after"])
    rows = re.findall(r'<th scope="row">([a-z_.]+)</th>', html)
    assert rows == ["optim.lr"]
    assert '<td data-label="after">0.00123</td>' in html
    folder = (runs["ngpt"] / "checkpoints" / "step_12").resolve()
    assert f"began with the weights of {folder}" in html
    assert "configurations are the same" in page(runs["ngpt"], runs["ngpt"])


def test_losses_of_different_tokenizers_are_not_compared(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """They are per token: a longer token costs more, whatever the model."""
    said = "these runs have different tokenizers: compare the bits per byte"
    other = tmp_path / "other"
    shutil.copytree(runs["gpt"], other)
    shutil.rmtree(other / "tokenizer")
    assert said not in page(runs["gpt"], runs["ngpt"], other)
    library = pytest.importorskip("tokenizers")
    bare = library.Tokenizer(library.models.BPE({"<|endoftext|>": 0, "a": 1}, []))
    LibraryTokenizer(bare.to_str(), "two", "<|endoftext|>").save(other / "tokenizer")
    html = page(runs["ngpt"], other)
    assert html.count(said) == 2  # at the numbers and at the pictures
    for folder in (runs["ngpt"], other):
        bits = read_metrics(folder / "metrics.jsonl")[-1]["val_bits_per_byte"]
        assert f'<td data-label="bits per byte">{bits:.4f}</td>' in html


def test_factors_are_shaded_from_the_lowest_layer_to_the_highest(runs: dict[str, Path]) -> None:
    shown = appearances([read_history(str(runs["ngpt"]))])
    evaluated = [m for m in read_metrics(runs["ngpt"] / "metrics.jsonl") if "val_loss" in m]
    by_name = {chart.name: chart for chart in factor_charts(shown)}
    assert set(by_name) == {"alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z"}
    (line,) = by_name["alpha_attn"].series
    assert [(low, high) for _, low, high in line.band] == [
        (min(m["alpha_attn"]), max(m["alpha_attn"])) for m in evaluated
    ]
    assert [x for x, *_ in line.band] == [x for x, _ in line.points]
    assert by_name["s_z"].series[0].band == []  # which no layer owns


def test_samples_of_the_newest_checkpoints(
    runs: dict[str, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the beginning of the validation text; without it where the data is gone, and none where
    there is no checkpoint yet."""
    dataset = open_dataset(corpus)
    for name, path in (("own", str(corpus)), ("gone", str(tmp_path / "nowhere"))):
        train(override(tiny("ngpt"), {"data.path": path}), dataset, tmp_path / name)
    shutil.copytree(runs["gpt"], tmp_path / "none")
    shutil.rmtree(tmp_path / "none" / "checkpoints")
    words = [str(tmp_path / name) for name in ("own", "gone", "none")]
    words += ["--out", str(tmp_path / "out"), "--sample-tokens"]
    assert main(["report", *words, "8"]) == 0
    html = (tmp_path / "out" / "report.html").read_text()
    written = re.findall(r'<pre><span class="prompt">(.*?)</span>(.*?)</pre>', html, re.DOTALL)
    ids = dataset.val.shards[0].tokens[:16].tolist()  # half of a context
    assert [before for before, _ in written] == [escape(bytes(ids).decode()), ""]
    assert all(text for _, text in written)
    assert len(re.findall(r"none[^<]* no finished checkpoint yet", html)) == 1
    assert "own writes at most 8 tokens" in capsys.readouterr().err
    assert main(["report", *words, "0"]) == 0
    assert "<pre>" not in (tmp_path / "out" / "report.html").read_text()


def test_a_prompt_ends_with_a_whole_letter(tmp_path: Path) -> None:
    """Half of a context of 32 bytes is five letters of three bytes, and a third of one."""
    (tmp_path / "text.txt").write_text("漢字" * 400, encoding="utf-8")
    words = ["prepare", str(tmp_path / "text.txt"), "--val-fraction", "0.5"]
    assert main([*words, "--out", str(tmp_path / "tokens")]) == 0
    dataset = open_dataset(tmp_path / "tokens")
    prompt = validation_prompt(dataset, dataset.tokenizer(), 32)
    assert len(prompt) == 15
    assert dataset.tokenizer().decode(prompt) in ("漢字漢字漢", "字漢字漢字")


def test_gpt_and_ngpt_have_their_colours(runs: dict[str, Path]) -> None:
    shown = appearances([read_history(str(runs[n])) for n in ("ngpt", "after", "gpt")])
    assert [(each.label, each.role) for each in shown] == [
        ("ngpt", "ngpt"),
        ("after", "third"),
        ("gpt", "gpt"),
    ]
    many = appearances([read_history(str(runs["ngpt"]))] * MOST_RUNS)
    assert len({(each.role, each.dotted) for each in many}) == MOST_RUNS
    assert [each.label for each in many[:2]] == ["run 1", "run 2"]  # the same name tells nothing


def test_a_run_that_goes_on(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line is half written, and the time of a step is not there yet."""
    going = tmp_path / "going"
    shutil.copytree(runs["ngpt"], going)
    for name, keep in (("metrics.jsonl", 7), ("speed.jsonl", 6)):
        lines = (going / name).read_bytes().splitlines(keepends=True)
        (going / name).write_bytes(b"".join(lines[:keep]) + lines[keep][:20])
    out = tmp_path / "out"
    for _ in range(2):  # the second replaces the first
        assert main(["report", str(going), "--out", str(out), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["runs"][str(going)]["step"] == 7
    history = read_history(str(going))
    usual = statistics.median(history.seconds.values())
    assert history.clock[7] - history.clock[6] == pytest.approx(usual)
    html = (out / "report.html").read_text()
    assert re.search(r"going at step 7 of 12, \d+s of steps to go\.", html)
    assert sorted(path.name for path in out.iterdir()) == [".spherelm", "report.html"]


def test_without_times_there_is_no_time(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["gpt"], tmp_path / "run")
    (tmp_path / "run" / "speed.jsonl").unlink()
    html = page(tmp_path / "run")
    assert "over time" not in html
    assert "Training loss over tokens" in html


def test_nothing_to_show_yet(
    dataset: TokenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny("gpt"), dataset, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 2
    assert "has no steps yet" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_without_steps_beside_one_that_has_some(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(runs["ngpt"], tmp_path / "new")
    for name in ("metrics.jsonl", "speed.jsonl"):
        (tmp_path / "new" / name).write_text("")
    html = page(runs["gpt"], tmp_path / "new")
    assert "0 of 12" in html
    assert "Not at the end: new at step 0 of 12." in html
