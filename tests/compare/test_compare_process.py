"""`spherelm compare` as a user runs it: a real process, from training to the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spherelm.compare.comparison import tokens_to_reach
from spherelm.folders.kinds import COMPARE, stranger
from spherelm.runs.metrics import read_metrics

SETTINGS = ("--preset", "debug", "--steps", "20", "--train.checkpoint-every", "5")


def command(out: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "spherelm", "compare", *SETTINGS, "--out", str(out), *flags]


def start(*args: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(*args: str) -> subprocess.CompletedProcess[str]:
    process = start(*args)
    stdout, stderr = process.communicate(timeout=300)
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A comparison that nothing disturbed, printed as JSON."""
    out = tmp_path_factory.mktemp("compare") / "new" / "whole"
    done = run(*command(out, "--json"))
    assert done.returncode == 0, done.stderr
    return out, done


def test_result_page_and_figures(finished):
    out, done = finished
    result = json.loads(done.stdout)
    assert result == json.loads((out / "result.json").read_text())
    curves = {}
    for arch in ("gpt", "ngpt"):
        lines = [line for line in read_metrics(out / arch / "metrics.jsonl") if "val_loss" in line]
        curves[arch] = [(line["tokens"], line["val_loss"]) for line in lines]
        assert result[arch]["final_loss"] == lines[-1]["val_loss"]
        assert result[arch]["seconds_per_step"] > 0
        assert result[arch]["sample"]["prompt"] == result["gpt"]["sample"]["prompt"] != ""
    first, second = ("ngpt", "gpt") if result["lead"] > 0 else ("gpt", "ngpt")
    assert result["outcome"] == first
    tokens = tokens_to_reach(curves[first], result[second]["final_loss"])
    assert result["speedup_tokens"] == (tokens and result["tokens"] / tokens)
    assert {p.name for p in out.iterdir()} == {
        *(".spherelm", "gpt", "ngpt", "result.json", "report.html"),
        *("loss.png", "loss-seconds.png", "alpha.png", "inside"),
    }
    assert stranger(out, COMPARE) is None
    assert f"{result['ngpt']['final_loss']:.3f}" in (out / "report.html").read_text()
    for name in ("GPT ", "nGPT"):  # progress of both, as lines where stderr is no terminal
        assert f"{name}  step 20/20" in done.stderr


def test_the_page_leads_to_the_insides_of_both_runs(finished):
    out, done = finished
    html = (out / "report.html").read_text()
    assert '<a href="inside/index.html">' in html
    inside = json.loads((out / "inside" / "inspect.json").read_text())
    assert [model["label"] for model in inside["models"]] == ["GPT", "nGPT"]
    prompt = json.loads(done.stdout)["gpt"]["sample"]["prompt"]
    ids = inside["models"][1]["path"]["tokens"]
    assert bytes(ids).decode(errors="replace").startswith(prompt)  # the same text
    page = (out / "inside" / "index.html").read_text()
    assert "Inside GPT and nGPT" in page
    assert "the beginning of the validation text" in page


def test_existing_comparison_is_refused_in_one_line(finished):
    out, _ = finished
    before = (out / "result.json").stat().st_mtime_ns
    refused = run(*command(out))
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert "--resume auto" in refused.stderr
    assert (out / "result.json").stat().st_mtime_ns == before


def test_killed_comparison_goes_on_to_the_same_numbers(finished, tmp_path):
    whole, _ = finished
    out = tmp_path / "killed"
    process = start(*command(out))
    deadline = time.monotonic() + 300
    while len(read_metrics(out / "ngpt" / "metrics.jsonl")) < 8:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not (out / "report.html").exists()

    resumed = run(*command(out, "--resume", "auto"))
    assert resumed.returncode == 0, resumed.stderr
    assert "seconds per step" in resumed.stdout
    assert "nGPT writes" in resumed.stdout
    assert resumed.stdout.endswith(f"inside: {out / 'inside' / 'index.html'}\n")
    for arch in ("gpt", "ngpt"):
        metrics = Path(arch) / "metrics.jsonl"
        assert (out / metrics).read_bytes() == (whole / metrics).read_bytes()
    mine, theirs = (json.loads((d / "result.json").read_text()) for d in (out, whole))
    assert mine["ngpt"]["sample"] == theirs["ngpt"]["sample"]
