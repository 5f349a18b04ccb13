"""What is held out where no document is by its hash: the end, as much of it as was asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spherelm.cli import main
from spherelm.data import the_end
from spherelm.data.dataset import TokenDataset
from spherelm.data.documents import pieces_of
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.writer import SplitWriter

LINES = [f"Line {i} of a book, which ends here.\n" for i in range(10_000)]
SEPARATOR = "\n<|endoftext|>\n"


def text_of(characters: int) -> str:
    """So many characters of lines; every tenth ends a paragraph."""
    lines = (line + "\n" * (i % 10 == 9) for i, line in enumerate(LINES))
    return "".join(lines)[:characters]


def prepared(tmp_path: Path, text: str, fraction: float = 0.01, **more: object) -> TokenDataset:
    (tmp_path / "text.txt").write_text(text)
    config = PrepareConfig(
        (str(tmp_path / "text.txt"),),
        tmp_path / "out",
        val_fraction=fraction,
        workers=1,
        **more,  # type: ignore[arg-type]
    )
    prepare(config)
    return open_dataset(tmp_path / "out")


def texts(data: TokenDataset) -> list[str]:
    """The text of each split of bytes."""
    tokens = (np.concatenate([s.tokens for s in split.shards]) for split in (data.train, data.val))
    return [bytes(t[t < 256].astype(np.uint8)).decode() for t in tokens]


@pytest.mark.parametrize(
    ("size", "fraction", "share"),
    [
        (700, 0.01, 0.1),
        (5_000, 0.01, 0.1),
        (5_000, 0.3, 0.3),
        (60_000, 0.01, 0.1),
        (65_600, 0.01, 0.1),  # whose second piece is a line
        (131_000, 0.05, 0.1),  # of two pieces
        (131_000, 0.2, 0.2),
        (300_000, 0.2, 0.2),
        (300_000, 0.9, 0.9),
    ],
)
def test_of_one_text_the_share_is_held_out_from_a_paragraph_on(
    size: int, fraction: float, share: float, tmp_path: Path
) -> None:
    text = text_of(size)
    train, val = texts(prepared(tmp_path, text, fraction))
    assert train + val == text
    # A paragraph of this text has 400 characters, more than a tenth of the shortest one: a line.
    assert share <= len(val) / size < share + 400 / size
    assert train.endswith("\n\n" if size > 4_000 else "\n")


def test_a_short_text_is_enough_for_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's first two lines, on a file of 4 KB."""
    text, out = tmp_path / "text.txt", str(tmp_path / "tokens")
    text.write_text(text_of(4_000))
    assert main(["prepare", str(text), "--out", out]) == 0
    assert "val is the end of the last one" in " ".join(capsys.readouterr().out.split())
    run = ["--preset", "ngpt-nano", "--steps", "1", "--device", "cpu", "--train.no-tensorboard"]
    assert main(["train", "--data", out, "--out", str(tmp_path / "run"), *run]) == 0
    assert "validation loss" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["\r\n", " ", "。"])
def test_without_paragraphs_it_begins_at_a_line_or_a_word(ending: str, tmp_path: Path) -> None:
    text = (f"schön und gut, {'二' * 9}{ending}" if ending == " " else f"{'二' * 30}{ending}") * 90
    train, val = texts(prepared(tmp_path, text))
    assert train + val == text
    if ending == " ":
        assert val.startswith((" schön", " und", " gut"))
    else:
        assert len(val) >= len(text) // 10
        assert (ending != "\r\n") or train.endswith("\r\n")


def test_short_documents_are_held_out_whole(tmp_path: Path) -> None:
    documents = [f"{name} of three. " * 40 for name in ("First", "Second", "Third")]
    data = prepared(tmp_path, SEPARATOR.join(documents), 1e-9)
    assert texts(data) == ["".join(documents[:2]), documents[2]]
    assert data.val.shards[0].header.documents == 1


def test_a_document_is_not_cut_for_little_more(tmp_path: Path) -> None:
    documents = [text_of(50_000), text_of(5_000)]
    data = prepared(tmp_path, SEPARATOR.join(documents), 1e-9)
    assert texts(data) == documents  # of 5,500 that are wanted


def test_long_documents_are_cut(tmp_path: Path) -> None:
    documents = [text_of(50_000), text_of(45_000)]
    data = prepared(tmp_path, SEPARATOR.join(documents), 1e-9)
    train, val = texts(data)
    assert train + val == "".join(documents)
    assert 9_500 <= len(val) < 10_000
    assert data.train.shards[0].header.documents == 2


def test_many_pieces_are_held_out_whole(tmp_path: Path) -> None:
    documents = [f"Document {i}." for i in range(the_end.REMEMBERED + 44)]
    data = prepared(tmp_path, SEPARATOR.join(documents), 0.0032)
    assert texts(data)[1] == documents[-1]  # one of 300, and none by its hash


def test_what_is_written_already_stays(tmp_path: Path) -> None:
    """At most the last shard is held out."""
    text = text_of(350_000)
    train, val = texts(prepared(tmp_path, text, 0.9, shard_tokens=1000))
    assert train + val == text
    assert len(val) < len(train)


@pytest.mark.parametrize("more", [{}, {"train_tokenizer": 300}])
def test_stopped_anywhere_and_gone_on_with_it_is_the_same(
    more: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first shard, between two, between the validation part and the last, and after."""
    text, settings = text_of(350_000), {"shard_tokens": 1000, **more}
    whole = prepared(tmp_path, text, 0.01, **settings)
    close, closed = SplitWriter.close_shard, [0]

    def stop(self: SplitWriter) -> None:
        closed[0] += 1
        if closed[0] == stops_at:
            raise KeyboardInterrupt
        close(self)

    for stops_at in (1, 2, 3):
        closed[0] = 0
        (tmp_path / f"{stops_at}").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(SplitWriter, "close_shard", stop)
            with pytest.raises(KeyboardInterrupt):
                prepared(tmp_path / f"{stops_at}", text, 0.01, **settings)
        again = prepared(tmp_path / f"{stops_at}", text, 0.01, **settings)
        assert again.fingerprint == whole.fingerprint
    assert len(whole.train.shards) == 2


def test_a_tokenizer_is_not_trained_on_the_end(tmp_path: Path) -> None:
    secret = "zqzqzqzqzqzqzq" * 400
    data = prepared(tmp_path, text_of(20_000) + "\n\n" + secret, 0.2, train_tokenizer=300)
    assert len(data.tokenizer().encode(secret)) == len(secret)


def test_a_tokenizer_is_trained_on_all_before_the_end() -> None:
    assert list(the_end.before_the_end([], 0.1)) == []
    pieces = [piece for i in range(300) for piece in pieces_of(f"{i:09}")]
    for count, fraction, wanted in ((100, 0.0, 100), (100, 0.1, 90), (300, 0.1, 300)):
        stream = [(piece, "train") for piece in pieces[:count]]
        assert list(the_end.before_the_end(stream, fraction)) == pieces[:wanted]
    stream = list(zip(pieces[:3], ["train", "val", "train"], strict=True))
    assert list(the_end.before_the_end(stream, 0.5)) == [pieces[0], pieces[2]]


def test_however_much_is_held_out_something_is_trained_on(tmp_path: Path) -> None:
    train, val = texts(prepared(tmp_path, "x" * 1000, 0.9999))
    assert (len(train), len(val)) == (1, 999)
