"""Documents and pieces: nothing is lost, and cuts do not change tokens."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spherelm.data import documents
from spherelm.data.documents import PIECE, Piece, cut, pieces_of, pieces_of_lines
from spherelm.data.open import open_builtin
from spherelm.data.tokenizer_library import train_tokenizer


def read(text: str) -> list[list[str]]:
    """The documents of a plain text, each as its pieces."""
    found: list[list[str]] = []
    for piece in pieces_of_lines(text.splitlines(keepends=True)):
        if piece.starts:
            found.append([])
        found[-1].append(piece.text)
    return found


def test_a_separator_is_a_line_of_its_own() -> None:
    assert read("a\nb\n<|endoftext|>\nc\n") == [["a\nb"], ["c\n"]]
    assert read("a <|endoftext|>\n<|endoftext|>!\n") == [["a <|endoftext|>\n<|endoftext|>!\n"]]
    assert read("a\r\n<|endoftext|>\r\nb") == [["a"], ["b"]]
    assert read("<|endoftext|>\n\n<|endoftext|>\n<|endoftext|>") == []  # empty documents
    assert read("no separator\n\n") == [["no separator\n\n"]]


def test_every_document_starts_and_ends_once() -> None:
    pieces = list(pieces_of("word " * PIECE))
    assert len(pieces) > 4
    assert [piece.starts for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]


# Small pieces, so that short random texts are cut often.
texts = st.text(st.sampled_from("ab \n"), max_size=200)


@given(parts=st.lists(texts, max_size=4), size=st.integers(4, 40))
def test_reading_by_lines_gives_what_cutting_documents_gives(parts: list[str], size: int) -> None:
    whole, documents.PIECE = documents.PIECE, size
    try:
        joined = "\n<|endoftext|>\n".join(parts)
        streamed = list(pieces_of_lines(joined.splitlines(keepends=True)))
        expected: list[Piece] = []
        for part in parts:
            expected += pieces_of(part)
        assert streamed == expected
        assert all(0 < len(piece.text) <= size + 1 for piece in streamed)
        assert "".join(piece.text for piece in streamed) == "".join(parts)
    finally:
        documents.PIECE = whole


def test_cutting_does_not_change_the_tokens(tmp_path: Path) -> None:
    # Python's sources: code with its indentation, and prose in the docstrings.
    data = open_builtin()
    text = data.tokenizer().decode(data.val.shards[0].tokens[:400_000].tolist())
    parts = cut(text)
    assert len(parts) > 4
    assert "".join(parts) == text
    tokenizer = train_tokenizer(iter([text]), 2000)
    together = tokenizer.encode(text)
    assert [i for part in parts for i in tokenizer.encode(part)] == together


def test_a_text_without_spaces_is_cut_all_the_same() -> None:
    parts = cut("x" * (3 * PIECE))
    assert "".join(parts) == "x" * (3 * PIECE)
    assert max(map(len, parts)) <= PIECE + 1
