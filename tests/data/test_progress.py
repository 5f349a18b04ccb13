"""The display of progress of `spherelm prepare`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress as Bar

from spherelm.cli import prepare as verb
from spherelm.data import prepare as preparing
from spherelm.data.prepare import PrepareConfig, Progress, prepare
from tests.corpus import prepare_corpus


def test_progress_of_each_stage_counts_from_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading for a tokenizer, training it, and tokenizing are three bars, each from its start."""
    clock = [100.0]
    bars: list[Bar] = []
    begin = Bar.__init__

    def note(self: Bar, *columns: Any, **settings: Any) -> None:
        begin(self, *columns, **{**settings, "get_time": lambda: clock[0]})
        bars.append(self)

    terminal = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(verb, "open_console", lambda stderr: terminal)
    monkeypatch.setattr(Bar, "__init__", note)
    monkeypatch.setattr(Bar, "start", lambda self: None)
    with verb._progress() as report:
        (bar,) = bars
        report(Progress("reading for the tokenizer", 500, 1000))
        clock[0] += 60
        report(Progress("training the tokenizer", 0, None))
        (task,) = bar.tasks
        assert (task.completed, task.total) == (0, None)
        clock[0] += 60
        report(Progress("tokenizing", 100, 1000, 50, 25))
        (task,) = bar.tasks
        assert (task.completed, task.total, task.elapsed) == (100, 1000, 0)
        clock[0] += 2
        report(Progress("tokenizing", 300, 1000, 4_000_000, 2_000_000))
        assert task.fields["made"] == "2.0 M tokens, 2.0 MB/s"
        clock[0] += 2
        report(Progress("tokenizing", 500, 1000, 8_000_000, 4_000_000))
        assert task.time_remaining == pytest.approx(5)  # 100 a second, 500 left


def test_a_tokenizer_is_trained_on_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar of that stage ends where enough has been read."""
    prepare_corpus(tmp_path, count=1200)  # far more than a file's buffer
    monkeypatch.setattr(preparing, "TOKENIZER_TEXT", 3000)
    seen: list[Progress] = []
    inputs = (str(tmp_path / "text.txt"),)
    config = PrepareConfig(
        inputs, tmp_path / "bpe", train_tokenizer=280, val_fraction=0.2, workers=1
    )
    prepare(config, seen.append)
    stages = list(dict.fromkeys(done.stage for done in seen))
    assert stages == ["reading for the tokenizer", "training the tokenizer", "tokenizing"]
    reading = [done for done in seen if done.stage == stages[0]]
    assert reading[-1].read >= (reading[-1].size or 0) > 2 * reading[0].read


def test_a_log_has_a_line_every_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(verb.time, "monotonic", lambda: clock[0])
    with verb._progress() as report:
        for seconds, done in (
            (59, Progress("reading for the tokenizer", 100, 1000)),
            (1, Progress("reading for the tokenizer", 250, 1000)),
            (30, Progress("tokenizing", 300, 1000, 50, 25)),
            (30, Progress("tokenizing", 0, None, 4_000_000, 2_000_000)),
        ):
            clock[0] += seconds
            report(done)
    assert capsys.readouterr().err.splitlines() == [
        "reading for the tokenizer, 25 % of the input",
        "tokenizing, 2.0 M tokens",
    ]


def test_there_is_no_bar_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with verb._progress() as report:
        report(Progress("tokenizing", 100, 1000))
    assert capsys.readouterr() == ("", "")
