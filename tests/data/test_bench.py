"""`spherelm bench data` measures what it says, at a size for a test."""

import json
import random
from pathlib import Path

import pytest

from spherelm.cli.bench import main
from spherelm.data.tokenizer_library import train_tokenizer


def test_it_reports_the_loader_and_prepare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(0)
    documents = [" ".join(rng.choices(("a", "few", "words", "é"), k=200)) for _ in range(50)]
    (tmp_path / "t.txt").write_text("\n<|endoftext|>\n".join(documents))
    train_tokenizer(iter(documents), 300).save(tmp_path / "tokenizer")
    arguments = ["--text", str(tmp_path / "t.txt"), "--tokenizer", str(tmp_path / "tokenizer")]
    assert (
        main(["data", *arguments, "--seconds", "0.01", "--rounds", "1", "--workers", "1", "--json"])
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert len(report["loader"]) == 6
    assert all(row["tokens_per_second"] > 1e5 for row in report["loader"])
    prepared = report["prepare"]
    assert prepared["text_bytes"] == sum(len(document.encode()) for document in documents)
    assert prepared["documents"] == 50
    rates = prepared["bytes_per_second"]
    bare = max(rates["encode_batch"], rates["encode_batch_fast"])
    assert prepared["share_of_bare"] == pytest.approx(rates["prepare"] / bare)
