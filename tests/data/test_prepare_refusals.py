"""What `spherelm prepare` refuses, in one line, with nothing written."""

import gzip
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spherelm.cli import main
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.errors import UserError
from tests.data.conftest import DOCUMENTS, TEXT
from tests.ordinary_user import as_an_ordinary_user


def _bad_inputs(folder: Path) -> dict[str, tuple[list[str], str]]:
    (folder / "ok.txt").write_text(TEXT)
    (folder / "empty.txt").write_text("")
    (folder / "ends.txt").write_text("<|endoftext|>\n<|endoftext|>\n")
    (folder / "blank.txt").write_text(" \n\t\n" * 1000 + "<|endoftext|>\n\n \n" * 200)
    (folder / "blank.jsonl").write_text('{"text": "  "}\n{"text": "\\n"}\n' * 200)
    (folder / "blanks.txt").write_text("\n" * 9)
    (folder / "short.txt").write_text("one short document")
    (folder / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    (folder / "wide.txt").write_text("fine\n", encoding="utf-16")
    (folder / "broken.txt.gz").write_bytes(gzip.compress(TEXT.encode())[:-20])
    (folder / "fake.txt.xz").write_text("not compressed")
    (folder / "bad.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (folder / "field.jsonl").write_text('{"body": "a", "id": 3}\n')
    (folder / "number.jsonl").write_text('{"text": 5}\n')
    (folder / "list.jsonl").write_text('["a"]\n')
    (folder / "bad.parquet").write_text("PAR1 it is not")
    pq.write_table(pa.table({"body": ["a"], "n": [1]}), folder / "body.parquet")
    pq.write_table(pa.table({"text": DOCUMENTS}), folder / "torn.parquet", use_dictionary=False)
    whole = bytearray((folder / "torn.parquet").read_bytes())
    whole[4:400] = bytes(396)  # the first page; what a file is opened by stands at its end
    (folder / "torn.parquet").write_bytes(whole)
    (folder / "nothing").mkdir()
    np.array([1, 2, 300], "<u2").tofile(folder / "t.bin")
    (folder / "file").write_text("")
    big = {f"w{i}": i for i in range(70_000)} | {"<|endoftext|>": 70_000}
    model = {"type": "WordLevel", "vocab": big, "unk_token": "w0"}
    (folder / "big.json").write_text(json.dumps({"version": "1.0", "model": model}))
    return {
        "missing file": (["gone.txt"], "cannot read gone.txt: No such file"),
        "no match": (["*.nope"], "no file matches *.nope"),
        "empty folder": (["nothing"], "folder nothing holds no"),
        "empty file": (["empty.txt"], "there is no text in empty.txt"),
        "only separators": (["ends.txt"], "there is no text in ends.txt"),
        "only blanks": (["blank.txt"], "there is no text in blank.txt (spaces and newlines"),
        "few blanks": (["blanks.txt"], "there is no text in blanks.txt"),
        "blank objects": (["blank.jsonl"], "there is no text in blank.jsonl"),
        "blanks, trained": (["blank.txt", "--train-tokenizer", "300"], "there is no text"),
        "blank validation": (["ok.txt", "--val", "blank.txt"], "there is no text in blank.txt"),
        "empty, trained": (["empty.txt", "--train-tokenizer", "300"], "there is no text"),
        "empty validation": (["ok.txt", "--val", "empty.txt"], "there is no text in empty.txt"),
        "nothing to hold out": (["short.txt"], "too short to hold out a part of it, which needs"),
        "not UTF-8": (["latin.txt"], "latin.txt is not UTF-8 text: invalid continuation byte"),
        "UTF-16": (
            ["wide.txt"],
            "in its first lines; convert it, or leave it out",
        ),
        "truncated gzip": (["broken.txt.gz"], "cannot read broken.txt.gz: Compressed file ended"),
        "no xz": (["fake.txt.xz"], "cannot read fake.txt.xz"),
        "bad JSON": (["bad.jsonl"], "bad.jsonl line 2 is not JSON"),
        "other field": (["field.jsonl"], "line 1 has no text in the field 'text'"),
        "field of a number": (["number.jsonl"], "has no text in the field 'text', but 5; fix the"),
        "no object": (["list.jsonl"], "list.jsonl line 1 has no text"),
        "bad Parquet": (["bad.parquet"], "bad.parquet is not a Parquet file"),
        "torn Parquet": (["torn.parquet"], "reading torn.parquet stopped part-way: "),
        "other column": (["body.parquet"], "body.parquet has no column 'text'"),
        "column of numbers": (["body.parquet", "--field", "n"], "no text in the column 'n'"),
        "no dataset": (["hf:./gone"], "cannot open hf:./gone"),
        "tokens unnamed": (["t.bin"], "t.bin holds tokens; name the tokenizer"),
        "other tokens": (["t.bin", "--tokenizer", "bytes"], "it has the token 300, out of 257"),
        "too many ids": (
            ["ok.txt", "--tokenizer", "big.json", "--dtype", "uint16"],
            "tokenizer big has 70001 ids, more than uint16 holds; use --dtype uint32",
        ),
        "bad dtype": (["ok.txt", "--dtype", "int8"], "--dtype must be one of auto, uint16, uint32"),
        "no tokenizer": (["ok.txt", "--tokenizer", "./gone"], "tokenizer ./gone does not exist"),
        "small vocabulary": (["ok.txt", "--train-tokenizer", "9"], "must be at least 257"),
        "two tokenizers": (
            ["ok.txt", "--tokenizer", "bytes", "--train-tokenizer", "300"],
            "cannot be given together",
        ),
        "two validations": (
            ["ok.txt", "--val", "ok.txt", "--val-fraction", "0.1"],
            "cannot be given together",
        ),
        "bad share": (["ok.txt", "--val-fraction", "1.5"], "--val-fraction must be at least 0"),
        "no input": ([], "there is no input"),
        "stdin twice": (["-", "--val", "-"], "stdin (-) can be read once"),
        "stdin to train on": (["-", "--train-tokenizer", "300"], "stdin (-) can be read once"),
    }


def test_no_tokenizer_is_trained_on_what_comes_through_a_pipe(tmp_path: Path) -> None:
    """What it had read was not there any more to be tokenized."""
    reading, writing = os.pipe()
    try:
        os.write(writing, TEXT.encode())
        os.close(writing)
        config = PrepareConfig((f"/dev/fd/{reading}",), tmp_path / "out", train_tokenizer=300)
        with pytest.raises(UserError, match="is a pipe, which can be read only once"):
            prepare(config)
    finally:
        os.close(reading)
    assert not config.out.exists()


def test_bad_input_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, (arguments, message) in _bad_inputs(tmp_path).items():
        before = sorted(tmp_path.rglob("*"))
        assert main(["prepare", *arguments, "--out", "out"]) == 2, name
        said = capsys.readouterr()
        assert message in said.err, (name, said.err)
        assert said.err.count("\n") == 1, (name, said.err)
        assert said.out == "", name
        assert sorted(tmp_path.rglob("*")) == before, name


def test_an_unreadable_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    # What the verb imports may lie where nobody can read it: let it be imported before.
    assert main(["prepare", "no-such-file.txt", "--out", "no-such-folder"]) == 2
    capsys.readouterr()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        path, out = Path(folder, "secret.txt"), Path(folder, "out")
        path.write_text("text")
        path.chmod(0)
        with as_an_ordinary_user():
            assert not os.access(path, os.R_OK, effective_ids=True)
            status = main(["prepare", str(path), "--out", str(out)])
        said = capsys.readouterr().err
        assert status == 2, said
        assert f"cannot read {path}: Permission denied" in said
        assert said.count("\n") == 1
        assert not out.exists()


def test_the_folder_must_be_ours(text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("")
    with pytest.raises(UserError, match="holds file, which `spherelm prepare` did not"):
        prepare(PrepareConfig((str(text_file),), tmp_path / "taken"))
    with pytest.raises(UserError, match="is a file"):
        prepare(PrepareConfig((str(text_file),), text_file))
    assert (tmp_path / "taken/file").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"val_fraction": 0.2}, "with --val-fraction 0.01, not with --val-fraction 0.2;"),
        ({"tokenizer": "bytes"}, "without --tokenizer, not with --tokenizer bytes;"),
        ({"train_tokenizer": 300}, "without --train-tokenizer, not with --train-tokenizer 300;"),
        ({"shard_tokens": 9}, "with --shard-tokens 67108864, not with --shard-tokens 9;"),
        ({"field": "body"}, "with --field text, not with --field body;"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused(
    text_file: Path, tmp_path: Path, change: dict[str, object], named: str
) -> None:
    prepare(PrepareConfig((str(text_file),), tmp_path / "out"))
    with pytest.raises(UserError, match=f"was begun {named}"):
        prepare(PrepareConfig((str(text_file),), tmp_path / "out", **change))  # type: ignore[arg-type]


def test_wide_ids_take_uint32(tmp_path: Path) -> None:
    _bad_inputs(tmp_path)
    (tmp_path / "w.txt").write_text("w69999")
    config = PrepareConfig(
        (str(tmp_path / "w.txt"),),
        tmp_path / "out",
        tokenizer=str(tmp_path / "big.json"),
        val_fraction=0,
        workers=1,
    )
    prepare(config)
    data = open_dataset(config.out)
    assert data.vocab_size == 70_001
    assert data.train.shards[0].tokens.dtype == np.uint32
    assert data.train.shards[0].tokens.tolist() == [69_999, 70_000]
