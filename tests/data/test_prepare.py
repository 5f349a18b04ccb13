"""`spherelm prepare`: what it writes, from every kind of input."""

import bz2
import gzip
import io
import json
import lzma
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spherelm.cli import main
from spherelm.data import prepare as prepare_module
from spherelm.data.dataset import TokenSplit
from spherelm.data.documents import Piece
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.sources import PieceStream, find_sources
from spherelm.data.tokenizer_library import train_tokenizer
from spherelm.errors import UserError
from tests.data.conftest import DOCUMENTS, TEXT


def documents_of(split: TokenSplit) -> list[str]:
    """The documents of a split of byte tokens, from where its shards say they start."""
    found = []
    for shard in split.shards:
        assert shard.starts is not None
        for tokens in np.split(shard.tokens, shard.starts[1:]):
            assert tokens[-1] == 256
            found.append(bytes(tokens[:-1].astype(np.uint8)).decode())
    return found


def test_documents_come_out_in_order_split_by_their_hash(text_file: Path, tmp_path: Path) -> None:
    manifest, _ = prepare(PrepareConfig((str(text_file),), tmp_path / "out", val_fraction=0.1))
    data = open_dataset(tmp_path / "out")
    train, val = documents_of(data.train), documents_of(data.val)
    assert sorted(train + val) == sorted(DOCUMENTS)
    assert train == [d for d in DOCUMENTS if d in set(train)]
    # 40 of 400 are expected; the deviation is sqrt(400 * 0.1 * 0.9) = 6.
    assert 10 < len(val) < 70
    assert data.train.n_bytes == sum(len(d.encode()) for d in train)
    assert manifest["splits"]["val"]["documents"] == len(val)
    assert manifest["splits"]["train"]["tokens"] == data.train.n_tokens
    # The same text goes the same way in another file and another order.
    other = tmp_path / "other.txt"
    other.write_text("\n<|endoftext|>\n".join(reversed(DOCUMENTS)))
    prepare(PrepareConfig((str(other),), tmp_path / "out2", val_fraction=0.1))
    assert sorted(documents_of(open_dataset(tmp_path / "out2").val)) == sorted(val)


def _write_inputs(folder: Path) -> dict[str, list[str]]:
    """The same documents in every form that is read; the arguments that name each."""
    rows = "".join(json.dumps({"text": d, "body": d, "id": 1}) + "\n" for d in DOCUMENTS)
    half = len(DOCUMENTS) // 2
    (folder / "a.txt").write_text(TEXT)
    (folder / "a.jsonl").write_text(rows)
    for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        with module.open(folder / f"c.txt{suffix}", "wb") as file:
            file.write(TEXT.encode())
    with gzip.open(folder / "c.jsonl.gz", "wb") as file:
        file.write(rows.encode())
    pq.write_table(pa.table({"n": range(400), "body": DOCUMENTS}), folder / "a.parquet")
    for name in ("folder", "hub"):
        (folder / name).mkdir()
    (folder / "folder/2.jsonl").write_text("".join(rows.splitlines(keepends=True)[half:]))
    (folder / "folder/1.txt").write_text("\n<|endoftext|>\n".join(DOCUMENTS[:half]))
    (folder / "folder/notes.pdf").write_bytes(b"\xff\xfe not text")
    pq.write_table(pa.table({"text": DOCUMENTS}), folder / "hub/train.parquet")
    (folder / "files").mkdir()
    for i, document in enumerate(DOCUMENTS):
        (folder / f"files/{i:03d}.src").write_text(document)
    tokens = [i for d in DOCUMENTS for i in (*d.encode(), 256)]
    np.array(tokens, "<u2").tofile(folder / "a.bin")
    return {
        "text": ["a.txt"],
        "jsonl": ["a.jsonl"],
        "jsonl, other field": ["a.jsonl", "--field", "body"],
        "gz": ["c.txt.gz"],
        "bz2": ["c.txt.bz2"],
        "xz": ["c.txt.xz"],
        "jsonl.gz": ["c.jsonl.gz"],
        "parquet": ["a.parquet", "--field", "body"],
        "folder": ["folder"],
        "glob": ["files/*.src"],
        "two files": ["folder/1.txt", "folder/2.jsonl"],
        "local dataset": ["hf:./hub"],
        "local dataset, split": ["hf:./hub::train"],
        "nanogpt": ["a.bin", "--tokenizer", "bytes"],
    }


def test_every_input_gives_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    prints = {}
    for i, (name, arguments) in enumerate(_write_inputs(tmp_path).items()):
        assert main(["prepare", *arguments, "--out", f"out{i}", "--json"]) == 0, name
        said = json.loads(capsys.readouterr().out)
        assert said["splits"]["train"]["documents"] > 350
        prints[name] = open_dataset(f"out{i}").fingerprint
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert main(["prepare", "-", "--out", "piped"]) == 0
    assert "piped: bytes, 257 ids" in capsys.readouterr().out
    prints["stdin"] = open_dataset("piped").fingerprint
    assert len(set(prints.values())) == 1, prints


def test_validation_inputs_of_their_own(text_file: Path, tmp_path: Path) -> None:
    val = tmp_path / "val.txt"
    val.write_text("held out\n<|endoftext|>\nand this")
    prepare(PrepareConfig((str(text_file),), tmp_path / "out", val=(str(val),)))
    data = open_dataset(tmp_path / "out")
    assert documents_of(data.train) == DOCUMENTS
    assert documents_of(data.val) == ["held out", "and this"]
    prepare(PrepareConfig((str(text_file),), tmp_path / "none", val_fraction=0))
    with pytest.raises(UserError, match="has no val split"):
        _ = open_dataset(tmp_path / "none").val


def test_the_end_of_one_long_text_is_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(f"Line {i} of a book.\n" for i in range(50_000))
    (tmp_path / "book.txt").write_text(text)
    prepare(PrepareConfig((str(tmp_path / "book.txt"),), tmp_path / "out", val_fraction=0.1))
    data = open_dataset(tmp_path / "out")
    train, val = (s.shards[0].tokens for s in (data.train, data.val))
    whole = np.concatenate([train, val])
    assert bytes(whole[:-1].astype(np.uint8)).decode() == text
    assert whole[-1] == 256
    # A piece is 64 KiB of this text of 1 MB, so the share is right to within a piece.
    assert abs(len(val) / len(whole) - 0.1) < (1 << 16) / len(whole)
    assert data.val.n_bytes == len(val) - 1
    assert data.val.shards[0].header.documents == 0  # it goes on with the document of the other
    book, more = str(tmp_path / "book.txt"), str(tmp_path / "more.txt")
    (tmp_path / "more.txt").write_text("another")
    for val, told in (["--val-fraction", "0.1"], True), (["--val", more], False):
        assert main(["prepare", book, "--out", str(tmp_path / val[0]), *val]) == 0
        said = "val is the end of the last one" in " ".join(capsys.readouterr().out.split())
        assert said == told


@pytest.mark.parametrize("more", [{}, {"train_tokenizer": 260}])
def test_the_only_document_is_trained_on_whatever_its_hash(
    more: dict[str, int], tmp_path: Path
) -> None:
    """Nine of ten single documents would be held out here, and nothing be left to train on."""
    for number in range(4):
        text, out = tmp_path / f"{number}.txt", tmp_path / f"out {number}"
        text.write_text("".join(f"Line {i} of book {number}.\n" for i in range(10_000)))
        prepare(PrepareConfig((str(text),), out, val_fraction=0.9, workers=1, **more))  # type: ignore[arg-type]
        data = open_dataset(out)
        assert 0 < data.train.n_tokens < data.val.n_tokens  # most of it, from its end


def test_shards_do_not_depend_on_the_workers_nor_their_size_on_the_tokens(tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("\n<|endoftext|>\n".join(DOCUMENTS * 20))
    tokenizer = train_tokenizer(iter(DOCUMENTS), 400)
    tokenizer.save(tmp_path / "tokenizer")
    outs = {}
    for name, workers, shard_tokens in (
        ("one", 1, 1000),
        ("two", 2, 1000),
        ("big", 1, 10**9),
    ):
        config = PrepareConfig(
            (str(text),),
            tmp_path / name,
            tokenizer=str(tmp_path / "tokenizer"),
            workers=workers,
            shard_tokens=shard_tokens,
        )
        prepare(config)
        outs[name] = open_dataset(tmp_path / name)
    assert len(outs["one"].train.shards) > 3
    assert outs["one"].fingerprint == outs["two"].fingerprint
    joined = np.concatenate([shard.tokens for shard in outs["one"].train.shards])
    assert np.array_equal(joined, outs["big"].train.shards[0].tokens)
    # The text comes back, and each document is what the tokenizer gives for it.
    ends = np.flatnonzero(joined == tokenizer.end_of_document)
    first = joined[: ends[0]].tolist()
    assert first == tokenizer.encode(tokenizer.decode(first))
    assert open_dataset(tmp_path / "one").tokenizer().decode(first) in DOCUMENTS


def test_a_tokenizer_is_trained_on_what_is_not_held_out(text_file: Path, tmp_path: Path) -> None:
    secret = "zqzqzqzqzqzqzq" * 200
    val = tmp_path / "val.txt"
    val.write_text(secret)
    config = PrepareConfig(
        (str(text_file),), tmp_path / "out", train_tokenizer=350, val=(str(val),), workers=1
    )
    manifest, _ = prepare(config)
    assert manifest["tokenizer"]["vocab_size"] == 350
    tokenizer = open_dataset(tmp_path / "out").tokenizer()
    assert tokenizer.fingerprint == manifest["tokenizer"]["fingerprint"]
    assert len(tokenizer.encode(secret)) == len(secret)  # no merge was learned from it
    assert len(tokenizer.encode(DOCUMENTS[39])) < len(DOCUMENTS[39]) / 2
    file = tmp_path / "out/tokenizer/tokenizer.json"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match=r"tokenizer.json is damaged: its checksum"):
        open_dataset(tmp_path / "out").tokenizer()
    train_tokenizer(iter(DOCUMENTS), 300).save(tmp_path / "out/tokenizer")
    with pytest.raises(UserError, match="it is not the tokenizer that made the tokens"):
        open_dataset(tmp_path / "out").tokenizer()
    with pytest.raises(UserError, match="it is not the tokenizer that made the tokens"):
        prepare(config)


def test_a_complete_folder_is_left_alone(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PrepareConfig((str(text_file),), tmp_path / "out")
    first = prepare(config)
    times = {path: path.stat().st_mtime_ns for path in config.out.rglob("*")}
    with monkeypatch.context() as patched:
        patched.setattr(PieceStream, "__iter__", lambda stream: pytest.fail("it was read again"))
        again = prepare(config)
    assert (first.was_complete, again.was_complete) == (False, True)
    assert again.manifest == first.manifest
    assert {path: path.stat().st_mtime_ns for path in config.out.rglob("*")} == times
    text_file.write_text(TEXT + "more")
    with pytest.raises(UserError, match="the input is not the one"):
        prepare(config)


def test_an_input_changed_at_equal_size_is_noticed(text_file: Path, tmp_path: Path) -> None:
    config = PrepareConfig((str(text_file),), tmp_path / "out")
    prepare(config)
    before = text_file.stat()
    text_file.write_text(TEXT)  # the same text at another time: read again, and found the same
    assert prepare(config).was_complete
    text_file.write_text(TEXT.replace("Document 7.", "Document 9."))
    os.utime(text_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert text_file.stat().st_size == before.st_size
    with pytest.raises(UserError, match="the input is not the one"):
        prepare(config)


def test_another_tokenizer_under_the_same_name_is_noticed(text_file: Path, tmp_path: Path) -> None:
    """In a folder that is complete, too: its tokens are those of the tokenizer before."""
    file, out = tmp_path / "tokenizer.json", tmp_path / "out"
    config = PrepareConfig((str(text_file),), out, tokenizer=str(file), workers=1)
    file.write_text(train_tokenizer(iter(DOCUMENTS), 300).content)
    prepare(config)
    assert prepare(config).was_complete
    file.write_text(train_tokenizer(iter(DOCUMENTS), 290).content)
    with pytest.raises(UserError, match="was begun with tokenizer_fingerprint"):
        prepare(config)


def test_what_is_piped_in_is_never_taken_for_what_was(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to train on nor to validate on: nobody can tell before it has been read."""
    for number, inputs in enumerate(({"inputs": ("-",)}, {"val": ("-",)})):
        given = {"inputs": (str(text_file),), "out": tmp_path / f"out{number}", **inputs}
        config = PrepareConfig(**given)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"some words " * 300)))
        prepare(config)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"other words " * 300)))
        with pytest.raises(UserError, match="the input is not the one"):
            prepare(config)


def test_a_missing_text_is_an_empty_one_in_lines_and_in_tables(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": null}\n{"text": "a"}\n{"text": null, "id": 3}\n')
    pq.write_table(pa.table({"text": [None, "b", None]}), tmp_path / "b.parquet")
    inputs = (str(tmp_path / "a.jsonl"), str(tmp_path / "b.parquet"))
    prepare(PrepareConfig(inputs, tmp_path / "out", val_fraction=0))
    assert documents_of(open_dataset(tmp_path / "out").train) == ["a", "b"]


def test_lone_surrogates_and_byte_order_marks(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "half \\ud83d letter"}\n\n{"text": ""}\n')
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfmarked")
    config = PrepareConfig(
        (str(tmp_path / "a.jsonl"), str(tmp_path / "b.txt")), tmp_path / "out", val_fraction=0
    )
    prepare(config)
    assert documents_of(open_dataset(config.out).train) == ["half ? letter", "marked"]


def test_of_a_folder_nothing_hidden_is_read(tmp_path: Path) -> None:
    """As by a glob; the folder itself may be hidden."""
    folder = tmp_path / ".notes"
    for name in ("b.txt", "a/c.md", ".venv/lib/LICENSE.txt", "a/.draft.txt", "a/picture.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    found = [source.name for source in find_sources([str(folder)])]
    assert found == [str(folder / "a" / "c.md"), str(folder / "b.txt")]
    glob = [source.name for source in find_sources([f"{folder}/**/*.txt"])]
    assert glob == [str(folder / "b.txt")]


def test_progress_ends_at_the_size_of_the_input(text_file: Path, tmp_path: Path) -> None:
    seen: list[prepare_module.Progress] = []
    prepare(PrepareConfig((str(text_file),), tmp_path / "out"), seen.append)
    assert seen[-1].read == seen[-1].size == text_file.stat().st_size
    assert seen[-1].text_bytes == sum(len(d.encode()) for d in DOCUMENTS)


@dataclass
class Given:
    """An input of these very pieces."""

    given: list[Piece]
    name = "given"
    size = stamp = None

    def check(self) -> None: ...

    def pieces(self, at: object) -> Iterator[Piece]:
        return iter(self.given)


def test_where_documents_end_is_part_of_what_the_input_was() -> None:
    """The same texts as one document, or as two: their tokens differ by the token between."""
    digests = set()
    for ends in (True, False):
        stream = PieceStream([Given([Piece("a", True, ends), Piece("b", ends, True)])], [], 0.0)
        assert len(list(stream)) == 2
        digests.add(stream.digest)
    assert len(digests) == 2
