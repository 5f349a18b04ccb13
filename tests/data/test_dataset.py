"""Folders of shards: what is written is read, and what is damaged is refused by name."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spherelm
from spherelm import records
from spherelm.cli import main
from spherelm.data import open as opening
from spherelm.data.dataset import MANIFEST, TokenDataset, read_nanogpt
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.shards import open_shard, smallest_dtype
from spherelm.errors import UserError
from tests.data.conftest import MakeDataset


def test_what_is_written_is_read(make_dataset: MakeDataset) -> None:
    data = make_dataset([30, 20])
    assert data.vocab_size == 257
    assert data.train.n_tokens == 50
    assert data.train.n_bytes == 150
    assert [shard.tokens[0] for shard in data.train.shards] == [0, 30]
    assert data.tokenizer().decode(data.tokenizer().encode("é\n")) == "é\n"
    assert json.loads((data.path / "train-00000.json").read_text())["dtype"] == "uint16"


def test_a_dataset_is_shown_in_a_line(make_dataset: MakeDataset) -> None:
    """Not with the array of every shard."""
    data = make_dataset([30, 20])
    assert repr(data).startswith(f"<TokenDataset {data.path}: train 50")
    assert repr(data).endswith("tokenizer bytes-257>")
    assert repr(data.train) == "<train: 50 tokens>"


def test_the_fingerprint_is_of_the_content_alone(make_dataset: MakeDataset) -> None:
    data, twin = make_dataset([50]), make_dataset([50], name="twin")
    assert data.fingerprint == twin.fingerprint
    assert data.fingerprint != make_dataset([51], name="longer").fingerprint
    assert data.fingerprint != make_dataset([50], document=9, name="cut").fingerprint


@pytest.mark.parametrize("suffix", ["tokens", "starts"])
def test_a_flipped_bit_is_refused_by_name(make_dataset: MakeDataset, suffix: str) -> None:
    path = make_dataset([500]).path / f"val-00000.{suffix}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1 << 3
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"val-00000.{suffix} is damaged: its checksum"):
        open_dataset(path.parent)
    open_dataset(path.parent, verify=False)  # who asks for no check gets none


def test_training_refuses_a_flipped_bit(
    make_dataset: MakeDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_dataset([5000]).path / "train-00000.tokens"
    content = bytearray(path.read_bytes())
    content[4321] ^= 1
    path.write_bytes(content)
    run = tmp_path / "run"
    arguments = ["--preset", "debug", "--data", str(path.parent), "--out", str(run)]
    assert main(["train", *arguments, "--steps", "1", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert f"shard {path} is damaged" in said
    assert said.count("\n") == 1
    assert not run.exists()


@pytest.mark.parametrize("name", ["train-00001.tokens", "train-00000.starts"])
def test_a_truncated_shard_is_refused_by_name_even_unverified(
    make_dataset: MakeDataset, name: str
) -> None:
    path = make_dataset([500, 500]).path / name
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(UserError, match=f"{name} is damaged: it has"):
        open_dataset(path.parent, verify=False)


def test_missing_and_damaged_files_are_refused_by_name(make_dataset: MakeDataset) -> None:
    folder = make_dataset([500, 500]).path
    manifest, header = folder / MANIFEST, folder / "train-00001.json"
    sealed = {path: path.read_text() for path in (manifest, header)}
    good = {path: re.sub(r',\s*"seal": "\w+"', "", text) for path, text in sealed.items()}
    for path, content, message in (
        (header, "{", "train-00001.json is damaged: it is not a JSON object"),
        (header, '{"format": "other"}', "train-00001.json is not a spherelm shard"),
        (header, '{"format": "spherelm shard", "version": 1}', "train-00001.json is damaged"),
        (header, good[header].replace('"version": 1', '"version": 2'), "is of version 2; this"),
        (header, good[header].replace('"count": 500', '"count": 400'), "train-00001.tokens is"),
        (header, good[header].replace('"text_bytes": 15', '"text_bytes": 25'), "text_bytes"),
        (header, sealed[header].replace('"text_bytes": 15', '"text_bytes": 25'), "its checksum"),
        (header, good[header].replace('"documents": 50', '"documents": true'), "cannot be True"),
        (manifest, good[manifest].replace("1000", "1001"), "dataset.json is damaged"),
        (manifest, good[manifest].replace('"shards": 2', '"shards": 0'), "split has no shards"),
        (manifest, sealed[manifest].replace("1000", "1001"), "its checksum"),
        (manifest, "[" * 100_000, "dataset.json is damaged: it is nested too deep"),
        (manifest, "9" * 5000, "dataset.json is damaged: it is not a JSON object"),
        (manifest, '{"format": "spherelm dataset", "version": 1}', "dataset.json is damaged"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message) as caught:
            open_dataset(folder)
        assert "\n" not in str(caught.value)
        path.write_text(good[path])
        open_dataset(folder)  # as one was written before there were seals
    (folder / "train-00001.tokens").unlink()
    with pytest.raises(UserError, match=r"cannot read shard .*train-00001.tokens"):
        open_dataset(folder)


def test_folders_without_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no tokens"):
        open_dataset(tmp_path)
    (tmp_path / "prepare.json").write_text("{}")
    with pytest.raises(UserError, match="is not complete; run the same"):
        open_dataset(tmp_path)


def test_bytes_of_tokens_are_those_of_the_split(tmp_path: Path) -> None:
    """Counted by the tokenizer, and where that is not the whole truth brought to the sum known."""
    text = "Über dem Berg.\n<|endoftext|>\n" * 40
    (tmp_path / "text.txt").write_text(text)
    for name in ("bytes", "bpe"):
        trains = {"train_tokenizer": 300} if name == "bpe" else {}
        prepare(PrepareConfig((str(tmp_path / "text.txt"),), tmp_path / name, workers=1, **trains))
        data = open_dataset(tmp_path / name)
        sizes = data.token_bytes("train")
        assert sizes is not None
        assert sizes.tolist() == data.tokenizer().token_bytes.tolist()
        ids = np.concatenate([shard.tokens for shard in data.train.shards])
        assert sizes[ids].sum() == data.train.n_bytes
    data = open_dataset(tmp_path / "bytes")
    header = data.train.shards[0].header
    doubled = dataclasses.replace(header, text_bytes=2 * header.text_bytes)
    shard = dataclasses.replace(data.train.shards[0], header=doubled)
    split = dataclasses.replace(data.train, shards=(shard,))
    twice = TokenDataset(data.path, {"train": split}, 257, data.tokenizer().fingerprint)
    assert twice.token_bytes("train")[65] == 2  # type: ignore[index]
    shutil.rmtree(data.path / "tokenizer")
    assert open_dataset(data.path).token_bytes("train") is None


def test_a_shard_of_another_split_or_tokenizer_is_refused(make_dataset: MakeDataset) -> None:
    """Sealed and counted like its own: as where shards of two folders are mixed up."""
    header = make_dataset([50]).path / "train-00000.json"
    sound = records.read(header)
    for change in ({"tokenizer_fingerprint": "another"}, {"split": "val"}):
        records.write(header, {**sound, **change})
        with pytest.raises(UserError, match=r"00000.json is damaged: its split or t"):
            open_dataset(header.parent)
    records.write(header, sound)
    assert open_dataset(header.parent).train.n_tokens == 50


def test_a_nanogpt_folder_is_read_as_it_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rng.integers(0, 500, 3000).astype("<u2").tofile(tmp_path / "train.bin")
    np.full(100, 777, "<u2").tofile(tmp_path / "val.bin")
    # Unpickling this would end the process.
    (tmp_path / "meta.pkl").write_bytes(b"cos\n_exit\n(I3\ntR.")
    data = open_dataset(tmp_path)
    assert data.train.n_tokens == 3000
    assert data.train.n_bytes is None
    assert data.token_bytes("train") is None
    assert data.vocab_size == 778
    assert open_dataset(tmp_path, vocab_size=50257).vocab_size == 50257
    with pytest.raises(UserError, match="has no tokenizer; name one"):
        data.tokenizer()
    before = data.fingerprint
    np.full(100, 778, "<u2").tofile(tmp_path / "val.bin")
    assert open_dataset(tmp_path).fingerprint != before
    for last in (1, 2):  # more than is looked at together, and another token at its end alone
        np.array([*[7] * 100_000, last], "<u2").tofile(tmp_path / "train.bin")
        assert open_dataset(tmp_path).fingerprint != before
        before = open_dataset(tmp_path).fingerprint
    (tmp_path / "train.bin").write_bytes(b"abc")
    with pytest.raises(UserError, match=r"train.bin is not a nanoGPT file"):
        open_dataset(tmp_path)


def test_where_the_ids_were_counted_that_is_said(
    tmp_path: Path, make_dataset: MakeDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else one learns after the training that the model has fewer ids than its tokenizer."""
    nano = tmp_path / "nano"
    nano.mkdir()
    for split in ("train", "val"):
        np.arange(500, dtype="<u2").tofile(nano / f"{split}.bin")
    assert make_dataset([30]).vocab_size_notes == ()
    command = ["train", "--preset", "ngpt-debug", "--data", str(nano), "--steps", "1"]
    command += ["--out", str(tmp_path / "run"), "--dry-run"]
    main(command)
    assert "the model gets 500, one more than the largest" in capsys.readouterr().err
    main([*command, "--model.vocab-size", "512"])
    assert "the model gets" not in capsys.readouterr().err
    (tmp_path / "run.toml").write_text("train.steps = 1\nmodel.context = 16\nmodel.d_model = 32\n")
    spherelm.train(tmp_path / "run.toml", nano, tmp_path / "run")
    assert "the model gets 500" in capsys.readouterr().err


def test_a_header_is_not_taken_for_tokens(tmp_path: Path) -> None:
    """The shards of llm.c and modded-nanogpt: 256 numbers, then tokens. The advice is right."""
    tokens, header = np.arange(500, dtype="<u2"), np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 500
    shard, folder = tmp_path / "fineweb train.bin", tmp_path / "nano"
    folder.mkdir()
    for file in (shard, folder / "train.bin"):
        file.write_bytes(header.tobytes() + tokens.tobytes())
    with pytest.raises(UserError, match="begins with the header"):
        open_dataset(folder)
    with pytest.raises(UserError, match="begins with the header") as refused:
        read_nanogpt(shard)
    advice = str(refused.value).partition("alone: ")[2]
    subprocess.run(advice, shell=True, check=True, cwd=folder)
    assert np.array_equal(read_nanogpt(folder / "train.bin"), tokens)


def test_ids_fit_their_dtype() -> None:
    assert smallest_dtype(65536) == "uint16"  # ids up to 65535
    assert smallest_dtype(65537) == "uint32"


def test_the_builtin_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = open_dataset()
    assert data.path.parent == tmp_path / "spherelm"
    assert data.vocab_size == 257
    assert data.train.n_tokens > 5_000_000
    assert 0.01 < data.val.n_tokens / data.train.n_tokens < 0.15
    shard = data.train.shards[0]
    assert shard.starts is not None
    assert (shard.tokens[shard.starts[1:] - 1] == 256).all()
    assert (shard.tokens == 256).sum() == shard.header.documents
    # Its first document is the first source file, whole.
    text = bytes(shard.tokens[: shard.starts[1] - 1].astype(np.uint8))
    assert text == next(
        text
        for path, text in opening._documents(Path(os.__file__).parent)
        if not opening._held_out(path)
    )
    # Used again as it is; made again when it is damaged, to the same content.
    before = (data.path / MANIFEST).stat().st_mtime_ns
    assert (open_dataset().path / MANIFEST).stat().st_mtime_ns == before
    (data.path / "train-00000.tokens").write_bytes(b"x")
    assert open_dataset().fingerprint == data.fingerprint
    assert os.listdir(tmp_path / "spherelm") == [data.path.name]  # nothing is left lying


def test_the_builtin_corpus_where_no_cache_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a file is in the way of the folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert open_dataset().train.n_tokens > 5_000_000


def test_opening_data_does_not_import_torch() -> None:
    code = (
        "import sys, spherelm.data.open as d; d.open_dataset(); import spherelm.cli.prepare;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_headers_say_what_shards_hold(make_dataset: MakeDataset) -> None:
    header = open_shard(make_dataset([30], document=7).path, "train-00000").header
    assert (header.count, header.documents, header.split) == (30, 5, "train")
    assert header.tokenizer == "bytes"


def test_the_builtin_corpus_where_nobody_is_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no name and no HOME."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert open_dataset().train.n_tokens > 1_000_000
