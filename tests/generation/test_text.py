"""Text as it comes: whole letters, stop strings, the end of a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from spherelm.data.tokenizer import ByteTokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.errors import UserError
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.generation.text import TextStream, encode_prompt, generate_text, stream_text
from tests.saved_runs import byte_model

BYTES = ByteTokenizer()


def pieces(text: str, stop: Sequence[str] = (), prompt: str = "a ") -> Iterator[str]:
    stream = TextStream(BYTES, BYTES.encode(prompt), stop)
    for token in BYTES.encode(text):
        yield stream.push(token)
        if stream.stopped:
            return
    yield stream.finish()


def test_half_a_letter_is_held_back() -> None:
    shown = list(pieces("né日🙂!"))
    assert "".join(shown) == "né日🙂!"
    assert "\ufffd" not in "".join(shown)
    assert shown[:3] == ["n", "", "é"]


def test_a_stop_string_is_never_shown_not_even_its_beginning() -> None:
    shown = list(pieces("one two\n\nthree", stop=["\n\n"]))
    assert "".join(shown) == "one two"
    assert list(pieces("a\nb", stop=["\n\n"])) == ["a", "", "\nb", ""]
    assert list(pieces("xab!", stop=["abcd"])) == ["x", "", "", "ab!", ""]


def test_the_first_of_several_stop_strings_counts() -> None:
    assert "".join(pieces("abcdef", stop=["ef", "cd"])) == "ab"
    assert "".join(pieces("abcdef", stop=["d", "cd"])) == "ab"  # both end with the same letter


def test_text_that_might_have_become_a_stop_string_comes_at_the_end() -> None:
    assert "".join(pieces("price: $", stop=["$$"])) == "price: $"


def test_a_broken_letter_at_the_end_is_shown_as_broken() -> None:
    stream = TextStream(BYTES, [97], [])
    assert stream.push(0xC3) == ""
    assert stream.push(None) == "\ufffd"


def test_a_word_after_the_prompt_keeps_its_space(tmp_path: Path) -> None:
    """SentencePiece eats the space of a first word: text is decoded together with its prompt."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three four"] * 20),
        model_prefix=str(tmp_path / "words"),
        vocab_size=14,
        minloglevel=2,
    )
    tokenizer = load_tokenizer(tmp_path / "words.model")
    ids = tokenizer.encode("one two three")
    prompt = tokenizer.encode("one")
    assert ids[: len(prompt)] == prompt
    stream = TextStream(tokenizer, prompt, [])
    shown = [stream.push(token) for token in ids[len(prompt) :]]
    assert "".join(shown) == " two three"


def test_a_long_text_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token of it for the tokens of its own part alone, letters of several bytes or not."""
    text = "né日🙂 of one and two\n" * 40
    decode, most = ByteTokenizer.decode, 0

    def note(tokenizer: ByteTokenizer, ids: Sequence[int]) -> str:
        nonlocal most
        most = max(most, len(ids))
        return decode(tokenizer, ids)

    monkeypatch.setattr(ByteTokenizer, "decode", note)
    for cut in range(5):  # where a part ends
        assert "".join(pieces(text[cut:], stop=["###"])) == text[cut:]
    assert most < 80
    assert "".join(pieces(text + "## #\n" + text, stop=["## #"], prompt=text)) == text


def test_text_of_a_model_is_the_decoded_tokens() -> None:
    engine = Engine(byte_model())
    prompts = [encode_prompt(BYTES, "def main("), encode_prompt(BYTES, "")]
    assert prompts[1] == [BYTES.end_of_document]
    tokens = engine.generate(prompts, max_new_tokens=40, sampling=Sampling(seed=1), stop_ids={256})
    texts = generate_text(engine, BYTES, prompts, max_new_tokens=40, sampling=Sampling(seed=1))
    assert texts == [BYTES.decode(row) for row in tokens]


def test_generation_goes_no_further_than_the_stop() -> None:
    engine = Engine(byte_model())
    prompts = [encode_prompt(BYTES, "x")]
    whole = generate_text(engine, BYTES, prompts, max_new_tokens=30, sampling=Sampling(seed=2))[0]
    stop = whole[10:12]
    assert generate_text(
        engine, BYTES, prompts, max_new_tokens=30, sampling=Sampling(seed=2), stop=[stop]
    ) == [whole[: whole.index(stop)]]


def test_generation_ends_with_the_document() -> None:
    engine, prompts = Engine(byte_model()), [encode_prompt(BYTES, "x")]
    (tokens,) = engine.generate(prompts, max_new_tokens=20, sampling=Sampling(seed=3))

    class Ending(ByteTokenizer):
        """Bytes, one of which ends a document: one that the model says."""

        end_of_document = tokens[5]

    before = tokens[: tokens.index(tokens[5])]
    texts = generate_text(engine, Ending(), prompts, max_new_tokens=20, sampling=Sampling(seed=3))
    assert texts == [BYTES.decode(before)]


def test_a_prompt_with_half_a_character_is_refused() -> None:
    """Python makes one of each byte that was typed and is not UTF-8."""
    with pytest.raises(UserError, match=r"the prompt 'a\\udcff' is not UTF-8"):
        encode_prompt(BYTES, "a\udcff")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(UserError, match="stop string is empty"):
        list(stream_text(Engine(byte_model()), BYTES, [[1]], max_new_tokens=1, stop=[""]))
