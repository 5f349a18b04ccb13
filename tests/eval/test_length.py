"""Perplexity by length: the same tokens at every length, RoPE as it is."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from shutil import rmtree
from xml.etree import ElementTree

import pytest
import torch

from spherelm.cli import main
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.data.tokenizer_library import train_tokenizer
from spherelm.errors import UserError
from spherelm.eval.length import (
    LengthCurve,
    chart_of,
    label_of,
    length_curve,
    read_books,
)
from spherelm.eval.texts import read_texts
from spherelm.plots import png, svg
from tests.saved_runs import byte_model, write_run

BYTES = ByteTokenizer()


def write_books(folder: Path, sizes: tuple[int, ...] = (300, 400, 20)) -> Path:
    folder.mkdir()
    for i, size in enumerate(sizes):
        text = " ".join(f"chapter {i} page {j}" for j in range(size))
        (folder / f"{i}.txt").write_text(text[:size])
    return folder


def test_a_book_is_read_as_prepare_reads_it(tmp_path: Path) -> None:
    """Its ends of lines are kept and a byte order mark is not, as the model has learned it."""
    (tmp_path / "book.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    (book,) = read_books(tmp_path, [BYTES], 14)[0]
    assert BYTES.decode(book.tolist()) == "one\r\ntwo\r\nthree"
    assert read_texts([str(tmp_path / "book.txt")])[0].documents == ("one\r\ntwo\r\nthree",)


def test_each_length_by_hand(tmp_path: Path) -> None:
    model = byte_model()
    (books,) = read_books(write_books(tmp_path / "books"), [BYTES], 256)
    assert books.shape == (2, 257)  # the third is too short
    curve = length_curve(model, BYTES, books, (32, 128, 256), tokens_per_batch=300)
    model.extend_context(256)
    for length, loss in zip(curve.lengths, curve.losses, strict=True):
        nats = 0.0
        with torch.no_grad():
            for book in books:
                for start in range(0, 256, length):
                    window = book[start : start + length + 1]
                    logp = model(window[None, :-1])[0].log_softmax(-1)
                    nats -= float(logp.gather(1, window[1:, None]).sum())
        assert math.isclose(loss, nats / 512, rel_tol=1e-5)
    assert curve.tokens == 512
    assert curve.perplexities == tuple(math.exp(loss) for loss in curve.losses)
    assert curve.bits_per_byte == tuple(loss / math.log(2) for loss in curve.losses)  # bytes


def test_which_books_are_read(tmp_path: Path) -> None:
    """Those with one token more than the length, the last target, by name, up to a limit."""
    folder = write_books(tmp_path / "books", (256, 257, 300, 400))
    assert read_books(folder, [BYTES], 256)[0].shape == (3, 257)
    (one,) = read_books(folder, [BYTES], 256, limit=1)
    assert BYTES.decode(one[0].tolist()) == (folder / "1.txt").read_text()
    assert len(read_books(folder, [BYTES], 256, limit=2)[0]) == 2


def test_a_token_may_be_many_characters(tmp_path: Path) -> None:
    text = "internationalization of institutions\n" * 200
    tokenizer = train_tokenizer(iter([text]), 300)
    (tmp_path / "book.txt").write_text(text)
    characters_per_token = len(text) / len(tokenizer.encode(text))
    assert characters_per_token > 4
    (books,) = read_books(tmp_path, [tokenizer], 256)
    assert books[0].tolist() == tokenizer.encode(text)[:257]


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = byte_model()
    (books,) = read_books(write_books(tmp_path / "b"), [BYTES], 256)
    length_curve(model, BYTES, books, (256,))
    with pytest.raises(UserError, match="longer than the context of 64"):
        model(torch.zeros(1, 65, dtype=torch.long))


def test_labels() -> None:
    labels = [
        label_of(byte_model(**fields).config)
        for fields in ({"arch": "gpt"}, {}, {"qk_norm": False, "context": 1024})
    ]
    assert labels == ["GPT, 64", "nGPT, 64", "nGPT without QK-norm, 1,024"]


def test_three_models_in_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        str(write_run(tmp_path / name, byte_model(**fields)))
        for name, fields in (("g", {"arch": "gpt"}), ("n", {}), ("q", {"qk_norm": False}))
    ]
    books = str(write_books(tmp_path / "books"))
    out = tmp_path / "out"
    options = ["--lengths", "64", "256", "--device", "cpu", "--out", str(out), "--json"]
    assert main(["eval", "length", *runs, "--books", books, *options]) == 0
    curves = json.loads(capsys.readouterr().out)["curves"]
    assert [c["label"] for c in curves] == ["GPT, 64", "nGPT, 64", "nGPT without QK-norm, 64"]
    assert json.loads((out / "length.json").read_text()) == curves
    assert (out / "length.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_with_plain_numbers() -> None:
    points = (1024, 2048), (4.5, 5.6), (94.7, 271.5)
    beyond = (1024, 2048), (4.5, 800.0), (94.7, math.inf)
    for values, shown, drawn in (
        (points, {"100", "120", "150", "200", "250"}, 2),
        (beyond, {"50", "100"}, 1),
    ):
        chart = chart_of([LengthCurve("GPT, 1,024", 1024, *values, 99, values[1], "bytes")])
        assert shown <= {label for _, label in chart.y_range.ticks}
        assert [label for _, label in chart.x_range.ticks] == ["1k", "2k"]
        assert len(chart.series[0].points) == drawn


def test_a_picture_of_nothing_but_infinities(tmp_path: Path) -> None:
    chart = chart_of([LengthCurve("GPT, 8", 8, (8,), (900.0,), (math.inf,), 99, (900.0,), "bytes")])
    assert "GPT, 8" not in svg.draw(chart).partition("</desc>")[2]
    if importlib.util.find_spec("matplotlib"):
        assert png.write([chart], tmp_path) == [tmp_path / "length.png"]


def test_every_curve_has_a_colour_of_its_own_and_gpt_the_one_it_has_everywhere() -> None:
    def curve(label: str) -> LengthCurve:
        return LengthCurve(label, 8, (8, 16), (2.0, 3.0), (7.0, 20.0), 99, (1.0, 2.0), "bytes")

    labels = ("nGPT, 8", "GPT, 8", "nGPT, 16", "GPT, 16")
    chart = chart_of([curve(label) for label in labels], "bits-per-byte")
    assert [line.role for line in chart.series] == ["ngpt", "gpt", "third", "fourth"]
    assert [line.square for line in chart.series] == [False, True, False, True]
    root = ElementTree.fromstring(svg.draw(chart))
    assert len(list(root.iter("polyline"))) == 4


@pytest.mark.parametrize(
    ("lengths", "message"),
    [(["512"], "no book in .* has 513 tokens"), (["100", "256"], "must divide the longest")],
)
def test_mistakes_end_in_one_line(
    lengths: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(write_run(tmp_path / "run", byte_model()))
    books = str(write_books(tmp_path / "books"))
    arguments = ["eval", "length", run, "--books", books, "--lengths", *lengths]
    assert main([*arguments, "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(message, error)


@pytest.mark.parametrize("fault", ["missing", "damaged", "no tokenizer"])
def test_a_bad_run_is_found_before_the_first_is_evaluated(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spherelm.eval.length.evaluate", lambda *_: pytest.fail("too early"))
    runs = [tmp_path / name for name in ("first", "second", "third")]
    for run in runs[: 2 if fault == "missing" else 3]:
        write_run(run, byte_model())
    if fault == "damaged":
        weights = next(runs[2].rglob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:-1])
    if fault == "no tokenizer":
        rmtree(runs[2] / "tokenizer")
        monkeypatch.setattr("spherelm.runs.load.open_dataset", _no_data)
    books = str(write_books(tmp_path / "books"))
    arguments = ["eval", "length", *map(str, runs), "--books", books, "--lengths", "64"]
    assert main([*arguments, "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert str(runs[2]) in error


def _no_data(*_: object, **__: object) -> None:
    raise UserError("data folder nowhere does not exist")


def test_runs_with_one_tokenizer_share_the_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def count(*arguments: object) -> list[torch.Tensor]:
        read.append(str(arguments[0]))
        return read_books(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("spherelm.eval.length.read_books", count)
    runs = [str(write_run(tmp_path / name, byte_model())) for name in "ab"]
    books = str(write_books(tmp_path / "books"))
    options = ["--books", books, "--lengths", "64", "--device", "cpu", "--json"]
    assert main(["eval", "length", *runs, *options]) == 0
    assert read == [books]


def test_runs_that_look_alike_get_labels_that_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(write_run(Path(name), byte_model())) for name in ("one", "[red]two")]
    books = str(write_books(tmp_path / "books"))
    options = ["--books", books, "--lengths", "64", "--device", "cpu"]
    assert main(["eval", "length", *runs, *options, "--json"]) == 0
    curves = json.loads(capsys.readouterr().out)["curves"]
    assert [c["label"] for c in curves] == [f"nGPT, 64 ({run})" for run in runs]
    assert main(["eval", "length", *runs, *options]) == 0
    assert "([red]two)" in capsys.readouterr().out
    assert main(["eval", "length", runs[0], runs[0], *options]) == 2
    assert "is named twice" in capsys.readouterr().err


def test_runs_of_different_tokenizers_compare_by_bits_per_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    books = write_books(tmp_path / "books", (3000, 4000, 300))
    bpe = train_tokenizer(iter([(books / "0.txt").read_text()]), 280)
    bytes_run = write_run(tmp_path / "bytes", byte_model())
    bpe_run = write_run(tmp_path / "bpe", byte_model(vocab_size=280))
    rmtree(bpe_run / "tokenizer")
    bpe.save(bpe_run / "tokenizer")
    arguments = ["eval", "length", str(bytes_run), str(bpe_run), "--books", str(books)]
    arguments += ["--lengths", "64", "256", "--device", "cpu"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "different tokenizers (bytes and bpe-280)" in error
    assert "use --metric bits-per-byte" in error
    assert main([*arguments, "--metric", "bits-per-byte", "--json"]) == 0
    said = capsys.readouterr()
    of_bytes, of_bpe = json.loads(said.out)["curves"]
    assert f"256 tokens, bits per byte {of_bytes['bits_per_byte'][1]:.4f}\n" in said.err
    assert "perplexity" not in said.err
    assert of_bytes["tokens"] == of_bpe["tokens"]  # the third book is too short for one of them
    # The same text in fewer tokens: more bits in each.
    ratio = of_bpe["bits_per_byte"][0] / (of_bpe["losses"][0] / math.log(2))
    assert ratio < 0.6
    assert of_bytes["tokenizer"] == "bytes"


def test_a_folder_without_books(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no books"):
        read_books(tmp_path, [BYTES], 8)
