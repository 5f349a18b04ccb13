"""`spherelm eval` with several models and several texts: one table, every mistake named at once."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import json
import lzma
import math
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from spherelm.cli import main
from spherelm.data import sources
from spherelm.data.documents import PIECE
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.data.tokenizer_library import train_tokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.errors import UserError
from spherelm.eval.loss import text_loss
from spherelm.eval.texts import read_texts, short_names
from spherelm.hf.export import export_to_hf
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run

WORDS = "some words, and naïve ones " * 8


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, an export, and texts of every kind."""
    monkeypatch.chdir(tmp_path)
    model = byte_model()
    write_run(tmp_path / "one", model)
    write_run(tmp_path / "two", byte_model(n_layers=1))
    export_to_hf("one", "exported")
    (tmp_path / "plain.txt").write_text(WORDS)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(WORDS.encode()))
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress(WORDS.encode()))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(WORDS.encode()))
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "1.txt").write_text("first")
    (folder / "deep" / "2.txt.gz").write_bytes(gzip.compress(b"second\n<|endoftext|>\nthird"))
    (folder / "3.jsonl").write_text(json.dumps({"text": "fourth"}) + "\n")
    (folder / "ignored.png").write_bytes(b"\xff")
    return tmp_path


def results(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert main(["eval", *argv, "--device", "cpu", "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["results"])


def test_every_model_on_every_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(next((here / "two" / "checkpoints").iterdir()))
    models = ["one", checkpoint, "exported"]
    texts = ["plain.txt", "a.txt.gz", "b.txt.bz2", "c.txt.xz", "folder"]
    found = results(capsys, *models, "--text", *texts)
    assert [(r["run"], r["text"]) for r in found] == [(m, t) for m in models for t in texts]
    losses = {(r["run"], r["text"]): r["loss"] for r in found}
    for model in models:
        assert len({losses[model, text] for text in texts[:4]}) == 1  # compressed or not
        assert losses[model, "folder"] != losses[model, "plain.txt"]
    assert math.isclose(losses["one", "folder"], losses["exported", "folder"], rel_tol=1e-6)
    assert losses["one", "folder"] != losses[checkpoint, "folder"]
    documents = ["first", "fourth", "second", "third"]  # files by path, a separator between two
    by_hand = text_loss(byte_model(), ByteTokenizer(), documents)
    (one,) = (r for r in found if (r["run"], r["text"]) == ("one", "folder"))
    assert math.isclose(one["loss"], by_hand.loss, rel_tol=1e-6)
    assert (one["documents"], one["text_bytes"]) == (4, sum(map(len, documents)))


@pytest.mark.parametrize("columns", [44, 80, 200])
@pytest.mark.parametrize("metric", ["bits-per-byte", "loss", "perplexity"])
def test_one_table(
    columns: int,
    metric: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole numbers at any width, rows of models, columns of texts."""
    texts = ["plain.txt", "folder", "folder/1.txt", "a.txt.gz", "folder/3.jsonl"]
    argv = ["one", "two", "--text", *texts]
    found = results(capsys, *argv)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["eval", *argv, "--device", "cpu", "--metric", metric]) == 0
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 10  # progress, a line for each
    assert max(map(len, said.out.split("\n"))) <= columns
    for result in found:
        assert f"{result[metric.replace('-', '_')]:,.4f}" in said.out
    if columns == 200:
        header = said.out.split("\n")[2]
        assert header.index("plain.txt") < header.index("folder") < header.index("3.jsonl")


def test_one_text_has_all_numbers_in_a_row(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["eval", "one", "two", "--text", "plain.txt", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "on plain.txt" in shown
    for head in ("loss", "perplexity", "bits per byte", "tokens"):
        assert head in shown
    assert sum(line.startswith(("│ one", "│ two")) for line in shown.split("\n")) == 2


def test_each_on_its_own_validation_set(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [*results(capsys, "one"), *results(capsys, "two")]
    assert results(capsys, "one", "two") == alone
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["eval", "one", "two", "--device", "cpu"]) == 0
    assert "on the validation set of the built-in corpus: 64 of" in capsys.readouterr().out


def test_different_tokenizers_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_corpus(here, count=400)
    settings = {"val_fraction": 0.2, "workers": 1}
    prepare(PrepareConfig(("text.txt",), here / "bpe", train_tokenizer=280, **settings))
    write_run(here / "other", byte_model(vocab_size=280))
    rmtree(here / "other" / "tokenizer")
    load_tokenizer(here / "bpe" / "tokenizer").save(here / "other" / "tokenizer")
    assert main(["eval", "one", "other", "--text", "plain.txt", "--device", "cpu"]) == 0
    assert "compare bits per byte" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "eval needs at least one run"),
        (["one", "one"], "one is named twice"),
        (["one", "missing"], "missing"),
        (["one", "two", "--text", "plain.txt", "no.txt"], "cannot read no.txt"),
        (["one", "--text", "plain.txt", "plain.txt"], "plain.txt is named twice"),
        (["one", "--text", "plain.txt", "empty.txt"], "the text empty.txt is empty"),
        (["one", "--text", "tokens.bin"], "tokens.bin holds tokens, not text"),
        (["one", "--text", "cut.txt.gz"], "cannot read cut.txt.gz"),
        (["one", "--text", "nothing"], "folder nothing holds no .txt"),
        (["one", "--text", "folder/3.jsonl", "--field", "body"], "no text in the field 'body'"),
        (["one", "two", "--data", "nowhere"], "nowhere"),
    ],
)
def test_a_bad_argument_is_named_before_anything_is_measured(
    arguments: list[str],
    message: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (here / "empty.txt").write_text("")
    (here / "tokens.bin").write_bytes(b"\0\0")
    (here / "cut.txt.gz").write_bytes(gzip.compress(WORDS.encode())[:20])
    (here / "nothing").mkdir()

    def measure(*_: object) -> None:
        raise AssertionError("a model was evaluated")

    monkeypatch.setattr("spherelm.cli.eval._measure", measure)
    assert main(["eval", *arguments, "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_zst_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Python from 3.14 on, by a package before, and a word where there is none."""
    file = here / "text.txt.zst"
    zstd = next(filter(importlib.util.find_spec, ("compression", "zstandard")), None)
    if zstd is not None:
        module = importlib.import_module("compression.zstd" if zstd == "compression" else zstd)
        file.write_bytes(module.compress(WORDS.encode()))
        assert read_texts(["text.txt.zst"])[0].documents == (WORDS,)
        frames = [module.compress(part.encode()) for part in (WORDS, "", "in two frames")]
        file.write_bytes(b"".join(frames))
        assert read_texts(["text.txt.zst"])[0].documents == (WORDS + "in two frames",)
        several_blocks = module.compress(bytes(WORDS, "utf-8") * 100_000)
        for cut in (frames[0][:-1], frames[0] + frames[2][:5], several_blocks[:-100]):
            file.write_bytes(cut)  # as by a copy that was broken off
            with pytest.raises(UserError, match=r"cannot read text\.txt\.zst: Compressed file end"):
                read_texts(["text.txt.zst"])
        file.write_bytes(b"no such thing")
        with pytest.raises(UserError, match=r"cannot read text\.txt\.zst"):
            read_texts(["text.txt.zst"])

    def not_there(name: str) -> None:
        raise ImportError(name)

    file.write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr("importlib.import_module", not_there)
        with pytest.raises(UserError, match=r"zst file needs the package zstandard: pip install"):
            read_texts(["text.txt.zst"])

    class Stand:
        @staticmethod
        def open(raw: io.BufferedReader, mode: str) -> io.BytesIO:
            return io.BytesIO(raw.read() + WORDS.encode())

    monkeypatch.setattr("importlib.import_module", lambda name: Stand)
    assert read_texts(["text.txt.zst"])[0].documents == (WORDS,)
    assert sources.COMPRESSION.keys() == {".gz", ".bz2", ".xz", ".zst"}


def test_tokenizers_are_told_apart_by_their_ids_and_not_by_their_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run, text in (("ones", WORDS), ("others", "that cat sat on a mat " * 9)):
        write_run(here / run, byte_model(vocab_size=270))
        rmtree(here / run / "tokenizer")
        train_tokenizer(iter([text]), 262).save(here / run / "tokenizer")
    renamed = export_to_hf("ones", "renamed")
    for file in ("spherelm.json", "spherelm-tokenizer.json"):  # what transformers does not keep
        (renamed / file).unlink()
    names = [load_tokenizer(f).name for f in ("ones/tokenizer", "others/tokenizer", "renamed")]
    assert names == ["bpe-262", "bpe-262", "renamed"]
    for runs, apart in ((["ones", "others"], True), (["ones", "renamed"], False)):
        assert main(["eval", *runs, "--text", "plain.txt", "--device", "cpu"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert ("these models have different tokenizers" in said) == apart
        length = ["eval", "length", *runs, "--books", ".", "--lengths", "8", "--device", "cpu"]
        assert main(length) == (2 if apart else 0)
        capsys.readouterr()


def test_names_of_columns() -> None:
    assert short_names(["a/x.txt", "b/y.txt", "c"]) == ["x.txt", "y.txt", "c"]
    assert short_names(["a/x.txt", "b/x.txt", "c/z.txt"]) == ["a/x.txt", "b/x.txt", "z.txt"]
    assert short_names(["-"]) == ["-"]


def test_a_long_document_is_one(tmp_path: Path) -> None:
    """However many pieces it is read in: what begins one is predicted after what was before."""
    long, short = "some words of a long one\n" * 8000, "a short one"
    (tmp_path / "text.txt").write_text(f"{long}<|endoftext|>\n{short}")
    assert len(long) > 2 * PIECE
    assert read_texts([str(tmp_path / "text.txt")])[0].documents == (long[:-1], short)
