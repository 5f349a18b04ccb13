"""Loss of a text: each token predicted once, in windows of the context."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from pathlib import Path
from shutil import rmtree

import pytest
import torch

from spherelm.cli import main
from spherelm.config_io import override, to_dict
from spherelm.data.loader import evaluation_batches
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.errors import UserError
from spherelm.eval.loss import text_loss
from spherelm.eval.texts import NamedText, read_texts
from spherelm.hf.export import export_to_hf
from spherelm.hf.import_run import import_from_hf
from spherelm.runs.run_dir import RunDir, write_description
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, change_state, write_run

BYTES = ByteTokenizer()


def test_a_text_in_windows_by_hand() -> None:
    model, text = byte_model(context=8), "naïve, isn't it?"
    ids = BYTES.encode(text)
    inputs = [256, *ids[:-1]]
    nats = 0.0
    with torch.no_grad():
        for start in range(0, len(ids), 8):
            window = torch.tensor([inputs[start : start + 8]])
            logp = model(window)[0].log_softmax(-1)
            nats -= sum(float(logp[t, ids[start + t]]) for t in range(window.shape[1]))
    for batch_size in (1, 3):
        measured = text_loss(model, BYTES, [text], batch_size=batch_size)
        assert measured.tokens == measured.text_bytes == len(ids) == 17
        assert math.isclose(measured.loss, nats / 17, rel_tol=1e-5)
        assert math.isclose(measured.perplexity, math.exp(nats / 17), rel_tol=1e-5)
        assert math.isclose(measured.bits_per_byte, nats / 17 / math.log(2), rel_tol=1e-5)


def test_texts_are_documents_of_their_own() -> None:
    model = byte_model()
    one, two = text_loss(model, BYTES, ["abc"]), text_loss(model, BYTES, ["hello"])
    both = text_loss(model, BYTES, ["abc", "hello"])
    assert math.isclose(both.loss, (3 * one.loss + 5 * two.loss) / 8, rel_tol=1e-5)


def test_one_text_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(UserError, match=r"texts is a list of texts, such as \[text\]"):
        text_loss(byte_model(), BYTES, "abc")


def test_a_text_may_come_through_a_pipe() -> None:
    """As of a shell's <(zcat texts/*.gz): from 64 lines on it ended in "Illegal seek"."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b"a line\n" * 200)
        os.close(writing)
        (text,) = read_texts([f"/dev/fd/{reading}"])
    finally:
        os.close(reading)
    assert text.documents == ("a line\n" * 200,)


def test_a_pipe_that_has_a_name_is_opened_once(tmp_path: Path) -> None:
    """The look at it beforehand took what the writer gave, and the reading then waited for ever."""
    pipe, found = tmp_path / "pipe.txt", list[NamedText]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.extend(read_texts([str(pipe)])), daemon=True)
    reader.start()
    pipe.write_text("a line\n" * 200)
    reader.join(timeout=20)
    assert [text.documents for text in found] == [("a line\n" * 200,)]


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(UserError, match="empty"):
        text_loss(byte_model(), BYTES, [""])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = byte_model()
    run = write_run(tmp_path / "run", model)
    text = tmp_path / "text.txt"
    text.write_text("some words " * 20)
    arguments = ["eval", str(run), "--text", str(text), "--device", "cpu", "--json"]
    assert main(arguments) == 0
    (report,) = json.loads(capsys.readouterr().out)["results"]
    assert math.isclose(
        report["loss"], text_loss(model, BYTES, [text.read_text()]).loss, rel_tol=1e-6
    )
    assert main([*arguments, "--context", "100"]) == 0  # beyond the 64 it was made for
    (longer,) = json.loads(capsys.readouterr().out)["results"]
    assert longer["loss"] != report["loss"]


def test_validation_set_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --text: the built-in corpus, for a run that has no data path."""
    run = write_run(tmp_path / "run", byte_model())
    assert main(["eval", str(run), "--device", "cpu", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["results"]
    assert report["tokens"] == 64 * 64
    assert report["data"] == "the built-in corpus"
    assert report["sequences"] == 64 < report["sequences_there_are"]
    assert report["context"] == 64
    batches = evaluation_batches(open_dataset().val, context=64, n_sequences=64, batch_size=64)
    ends = int((next(batches).targets == 256).sum())
    bits = report["loss"] / math.log(2) / (1 - ends / 64**2)
    assert math.isclose(report["bits_per_byte"], bits, rel_tol=1e-9)
    # Bytes, and one token for the end of each document.
    assert 1.0 <= report["bits_per_byte"] * math.log(2) / report["loss"] < 1.01


def test_it_says_which_part_of_the_validation_set_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    prepare_corpus(tmp_path, count=400)
    write_run(Path("[bold]run"), byte_model(context=512))
    assert main(["eval", "[bold]run", "--data", "data", "--device", "cpu"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "on the validation set of data: all 4 sequences of 512 tokens" in shown
    assert "│ [bold]run │" in shown
    assert main(["eval", "[bold]run", "--data", "data", "--device", "cpu", "--context", "8"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"64 of \d+ sequences of 8 tokens, evenly spread", shown)


def test_data_that_is_not_here_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a run's data is that of the folder it was trained in."""
    prepare_corpus(tmp_path, count=400)
    run = write_run(tmp_path / "run", byte_model(context=8))
    config = override(RunDir(run).read_config(), {"data.path": "data"})
    write_description(RunDir(run), config)
    change_state(run / "checkpoints" / "step_7", config=to_dict(config))
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "run", "--device", "cpu"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    capsys.readouterr()
    assert main(["eval", "../run", "--device", "cpu"]) == 2
    assert "../run was trained on data, which is not here; name the folder of its data with " in (
        capsys.readouterr().err
    )
    assert main(["eval", "../run", "--device", "cpu", "--data", "../data"]) == 0
    rmtree(run / "tokenizer")
    capsys.readouterr()
    assert main(["eval", "../run", "--device", "cpu", "--text", "../text.txt"]) == 2
    assert "(data folder data does not exist); name one with --tokenizer" in capsys.readouterr().err


def test_only_tokens_of_its_own_tokenizer_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An imported run does not know its data any more: the built-in bytes are not it."""
    prepare_corpus(tmp_path, count=400)
    data, other = tmp_path / "bpe", tmp_path / "other"
    settings = {"val_fraction": 0.2, "workers": 1}
    inputs = (str(tmp_path / "text.txt"),)
    prepare(PrepareConfig(inputs, data, train_tokenizer=280, **settings))
    prepare(PrepareConfig(inputs, other, train_tokenizer=270, **settings))
    run = write_run(tmp_path / "run", byte_model(vocab_size=280))
    rmtree(run / "tokenizer")
    load_tokenizer(data / "tokenizer").save(run / "tokenizer")
    imported = import_from_hf(export_to_hf(run, tmp_path / "hf"), tmp_path / "imported")
    for path in (run, tmp_path / "hf", imported):
        assert main(["eval", str(path), "--device", "cpu"]) == 2
        refusal = capsys.readouterr().err
        assert len(refusal.splitlines()) == 1
        assert "reads tokens of bpe-280, and " in refusal
        assert "holds tokens of bytes; name the run's own data with --data" in refusal
        assert main(["eval", str(path), "--device", "cpu", "--data", str(other)]) == 2
        assert "holds tokens of bpe-270" in capsys.readouterr().err
        assert main(["eval", str(path), "--device", "cpu", "--data", str(data)]) == 0
        capsys.readouterr()
        assert main(["eval", str(path), "--tokenizer", "bytes", "--text", *inputs]) == 2
        assert "has its own tokenizer, bpe-280, and bytes gives other ids" in (
            capsys.readouterr().err
        )
    rmtree(run / "tokenizer")
    assert main(["eval", str(run), "--device", "cpu"]) == 2
    assert "is not the data that it was trained on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-size", "-1"], "--batch-size must be a whole number of at least 1"),
        (["--text", "BINARY", "--batch-size", "0"], "--batch-size must be"),
        (["--text", "BINARY", "--data", "x"], "cannot be given together"),
        (["--text", "missing.txt"], "cannot read missing.txt: No such file"),
        (["--text", "BINARY"], "is not UTF-8 text"),
        (["--context", "0"], "--context must be a whole number of at least 1"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", byte_model())
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    arguments = [str(tmp_path / "binary") if a == "BINARY" else a for a in arguments]
    assert main(["eval", str(run), *arguments, "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
