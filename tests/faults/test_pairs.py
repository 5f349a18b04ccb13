"""Two that write to one folder at once: one goes on, the other is told who does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from spherelm.data.open import open_dataset
from spherelm.data.tokenizer_library import train_tokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.runs.metrics import read_metrics
from tests.corpus import prepare_corpus, sentences
from tests.faults.trials import hold
from tests.processes import Spherelm

HELD = re.compile(r"is being written by (`spherelm \w+`, process \d+ on \S+|another process)")
LATE = re.compile("already holds|is complete|was begun with|lies inside")
"""What the second hears that came when the first had ended."""

Command = Callable[[Path, int], list[str]]


def pair(folder: Path, number: int, command: Command) -> tuple[str | None, int, Path]:
    """Start two commands together: what went wrong, which one ended well, and the folder."""
    place = folder / str(number)
    place.mkdir()
    out, logs = place / "out", [folder / f"{number}-{i}.log" for i in range(2)]
    both = [Spherelm(command(out, i), log) for i, log in enumerate(logs)]
    ends = [(one.wait(), one.output()) for one in both]
    winners = [i for i, (status, _) in enumerate(ends) if status == 0]
    if len(winners) != 1:
        return f"{len(winners)} of 2 ended well: {ends}", 0, out
    status, said = ends[1 - winners[0]]
    if status != 2 or not (HELD.search(said) or LATE.search(said)):
        return f"the other was not told: {status} {said}", 0, out
    if [p.name for p in place.iterdir()] != ["out"]:
        return f"something is left beside: {sorted(p.name for p in place.iterdir())}", 0, out
    return None, winners[0], out


def test_train_and_train(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path, count=600)

    def command(out: Path, which: int) -> list[str]:
        fields = ["--preset", "debug", "--steps", "6", "--train.batch-size", "2"]
        fields += ["--train.eval-sequences", "2", "--train.checkpoint-every", "3"]
        how = ["--data", str(corpus), "--seed", str(which), "--train.no-tensorboard"]
        return ["train", "--out", str(out), *fields, *how]

    def trial(number: int) -> str | None:
        wrong, winner, out = pair(tmp_path, number, command)
        if wrong is None and f"seed = {winner}\n" not in (out / "config.toml").read_text():
            wrong = "the configuration is the other's"
        if wrong is None:
            steps = [line["step"] for line in read_metrics(out / "metrics.jsonl")]
            wrong = None if steps == [*range(1, 7)] else f"the metrics have the steps {steps}"
        if wrong is None:
            shutil.rmtree(out.parent)
        return wrong

    hold("two trainings into one folder", trial, sample=2, full=12, at_once=4)


def test_prepare_and_prepare(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(sentences(500))
    tokenizers = [tmp_path / "small", tmp_path / "large"]
    for size, folder in zip((260, 290), tokenizers, strict=True):
        train_tokenizer(iter([text.read_text()]), size).save(folder)

    def command(out: Path, which: int) -> list[str]:
        more = ["--shard-tokens", "500", "--val-fraction", "0.2", "--workers", "1"]
        tokenizer = ["--tokenizer", str(tokenizers[which])]
        return ["prepare", str(text), "--out", str(out), *tokenizer, *more]

    def trial(number: int) -> str | None:
        wrong, winner, out = pair(tmp_path, number, command)
        if wrong is None:
            dataset = open_dataset(out, verify=True)
            largest = max(int(shard.tokens.max()) for shard in dataset.train.shards)
            if dataset.tokenizer().fingerprint != load_tokenizer(tokenizers[winner]).fingerprint:
                wrong = "the tokenizer is the other's"
            elif (largest >= 260) != (winner == 1):
                wrong = f"the tokens are the other's: up to {largest}"
            shutil.rmtree(out.parent)
        return wrong

    hold("two prepares into one folder", trial, sample=2, full=12, at_once=4)


def test_compare_and_compare(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path, count=600)

    def command(out: Path, which: int) -> list[str]:
        fields = ["--preset", "debug", "--steps", "2", "--train.batch-size", "2"]
        fields += ["--train.eval-sequences", "2", "--train.no-tensorboard", "--json"]
        return ["compare", "--out", str(out), "--data", str(corpus), "--seed", str(which), *fields]

    def trial(number: int) -> str | None:
        wrong, winner, out = pair(tmp_path, number, command)
        if wrong is None:
            configs = [(out / arch / "config.toml").read_text() for arch in ("gpt", "ngpt")]
            if not all(f"seed = {winner}\n" in config for config in configs):
                wrong = "a configuration is the other's"
            shutil.rmtree(out.parent)
        return wrong

    hold("two comparisons into one folder", trial, sample=1, full=6, at_once=4)
