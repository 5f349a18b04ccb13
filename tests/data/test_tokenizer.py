"""Every kind of tokenizer: round trips, ends of documents, fingerprints, saving, pickling."""

import json
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from spherelm.cli import main
from spherelm.data.byte_level import byte_tokenizer_json
from spherelm.data.open import open_dataset
from spherelm.data.tokenizer import ByteTokenizer, Tokenizer, fingerprint_of, same_ids
from spherelm.data.tokenizer_library import LibraryTokenizer, train_tokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.data.train_apart import train_apart
from spherelm.errors import UserError

TEXT = [
    "The quick brown fox jumps over the lazy dog.\n",
    "Der schnelle braune Fuchs springt über den faulen Hund.\n",
    "def f(x):\n    return x ** 2  # 二\n",
] * 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tokenizer of each kind, as users have them."""
    folder = tmp_path_factory.mktemp("tokenizers")
    trained = train_tokenizer(iter(TEXT), 300)
    (folder / "bpe.json").write_text(trained.content)
    # GPT-2's form: a vocabulary and a list of merges.
    model = json.loads(trained.content)["model"]
    gpt2 = folder / "gpt2"
    gpt2.mkdir()
    (gpt2 / "my-encoder.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(m if isinstance(m, str) else " ".join(m) for m in model["merges"])
    (gpt2 / "my-vocab.bpe").write_text(f"#version: 0.2\n{merges}\n")
    # A Hugging Face folder whose end of text has a name of its own.
    folder.joinpath("hf").mkdir()
    (folder / "hf/tokenizer.json").write_text(trained.content.replace("<|endoftext|>", "<|fin|>"))
    (folder / "hf/tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|fin|>"}})
    )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_prefix=str(folder / "llama"),
        vocab_size=300,
        byte_fallback=True,
        model_type="bpe",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return folder


KINDS: dict[str, Callable[[Path], str]] = {
    "bytes": lambda files: "bytes",
    "file": lambda files: str(files / "bpe.json"),
    "gpt2 folder": lambda files: str(files / "gpt2"),
    "gpt2 file": lambda files: str(files / "gpt2/my-vocab.bpe"),
    "hf folder": lambda files: str(files / "hf"),
    "sentencepiece": lambda files: str(files / "llama.model"),
}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, files: Path) -> Tokenizer:
    return load_tokenizer(KINDS[request.param](files))


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    # LLaMA-2's kind eats one space at the start, as its own decoder does; so none is put there.
    for text in (*TEXT[:3], "tab\tand  spaces\n\n\nend", "emoji 🙂 é", "<|endoftext|> </s> <s>"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode([*ids, tokenizer.end_of_document]) == text
        assert tokenizer.end_of_document not in ids  # text is text, also when it spells the mark
        assert max(ids) < tokenizer.vocab_size
    assert tokenizer.encode("") == []


def test_a_batch_gives_what_single_texts_give(tokenizer: Tokenizer) -> None:
    batch = tokenizer.encode_batch([*TEXT[:3], "", "x"])
    assert [ids.tolist() for ids in batch] == [
        tokenizer.encode(text) for text in (*TEXT[:3], "", "x")
    ]


def test_saved_and_pickled_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "saved")
    for twin in (load_tokenizer(tmp_path / "saved"), pickle.loads(pickle.dumps(tokenizer))):
        assert twin.fingerprint == tokenizer.fingerprint
        assert twin.name == tokenizer.name
        assert twin.vocab_size == tokenizer.vocab_size
        assert twin.end_of_document == tokenizer.end_of_document
        assert twin.encode(TEXT[1]) == tokenizer.encode(TEXT[1])


def test_every_token_knows_its_bytes(tokenizer: Tokenizer) -> None:
    """The ids of a text stand for its bytes, also for those of half a letter; marks for none."""
    sizes = tokenizer.token_bytes
    assert len(sizes) == tokenizer.vocab_size
    assert sizes[tokenizer.end_of_document] == 0
    space = 1 if tokenizer.name == "llama" else 0  # which SentencePiece puts before a text
    for text in (*TEXT[:3], "tab\tand  spaces\n\n\nend", "emoji 🙂 é", "<|endoftext|> ## </s>"):
        assert sizes[tokenizer.encode(text)].sum() == len(text.encode()) + space


def test_words_that_go_on_have_no_bytes_for_the_mark_of_it() -> None:
    model = tokenizers.models.WordPiece(
        {"[UNK]": 0, "sphe": 1, "##re": 2, "é": 3}, unk_token="[UNK]"
    )
    bert = tokenizers.Tokenizer(model)
    bert.decoder = tokenizers.decoders.WordPiece()
    bert.add_special_tokens(["</s>"])
    bert.add_tokens(["added"])
    sizes = LibraryTokenizer(bert.to_str(), "bert").token_bytes
    assert sizes.tolist()[1:] == [4, 2, 2, 0, 5]


def test_the_end_of_a_document_is_no_text_whatever_kind_of_token_it_is(files: Path) -> None:
    """It has no bytes, and no text can end a document by spelling it out."""
    values = json.loads((files / "bpe.json").read_text())
    (end,) = values["added_tokens"]
    assert values["model"]["vocab"][end["content"]] == end["id"]
    plain = load_tokenizer(files / "bpe.json").encode(f"a{end['content']}b")
    for added in ([{**end, "special": False}], []):  # the latter: one of the model's own
        odd = LibraryTokenizer(json.dumps(values | {"added_tokens": added}), "odd")
        assert odd.token_bytes[odd.end_of_document] == 0
        assert odd.encode(f"a{end['content']}b") == plain
        assert odd.end_of_document not in plain
    letter = load_tokenizer(files / "llama.model", "e")
    assert letter.token_bytes[letter.end_of_document] == 0


def test_added_tokens_are_known_by_the_ids_that_they_have() -> None:
    """Not by those that their file gives them, where the library has seen fit to give others."""
    odd = byte_tokenizer_json()
    del odd["model"]["vocab"]["a"]  # ids up to 255 with a gap, and so 256 of them less one
    odd["added_tokens"].append(
        {**odd["added_tokens"][0], "id": 999, "content": "é", "special": False}
    )
    tokenizer = LibraryTokenizer(json.dumps(odd), "odd")
    (added,) = tokenizer.encode("é")
    assert tokenizer.token_bytes[added] == 2


@given(st.text())
def test_bytes_are_utf8(text: str) -> None:
    tokenizer = ByteTokenizer()
    assert bytes(tokenizer.encode(text)) == text.encode()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_gpt2_files_give_the_same_ids_as_the_json(files: Path) -> None:
    one, two = load_tokenizer(files / "bpe.json"), load_tokenizer(files / "gpt2/my-encoder.json")
    assert one.vocab_size == two.vocab_size
    for text in TEXT[:3]:
        assert one.encode(text) == two.encode(text)


def test_ids_are_those_of_the_libraries(files: Path) -> None:
    library = tokenizers.Tokenizer.from_file(str(files / "bpe.json"))
    assert load_tokenizer(files / "bpe.json").encode(TEXT[2]) == library.encode(TEXT[2]).ids
    processor = sentencepiece.SentencePieceProcessor(model_file=str(files / "llama.model"))
    llama = load_tokenizer(files / "llama.model")
    assert llama.encode(TEXT[2]) == processor.encode(TEXT[2])
    assert llama.end_of_document == processor.eos_id()


def test_the_end_of_a_document_can_be_named(files: Path) -> None:
    assert load_tokenizer(files / "hf").end_of_document == 0
    with pytest.raises(UserError, match="none of the usual tokens"):
        load_tokenizer(files / "hf/tokenizer.json")
    named = load_tokenizer(files / "hf/tokenizer.json", "<|fin|>")
    assert named.fingerprint == load_tokenizer(files / "hf").fingerprint
    other = load_tokenizer(files / "llama.model", "<s>")
    assert other.end_of_document == 1
    assert other.fingerprint != load_tokenizer(files / "llama.model").fingerprint
    for path in (files / "bpe.json", files / "llama.model"):
        with pytest.raises(UserError, match=r"has no (token|piece) '<nope>'"):
            load_tokenizer(path, "<nope>")


def test_the_name_of_one_trained_on_little_text_says_how_many_ids_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a longer name than "out" might be broken into lines
    Path("text.txt").write_text("".join(TEXT))
    out = "out"
    argv = ["prepare", "text.txt", "--train-tokenizer", "8000", "--out", out]
    for again in (False, True):
        assert main(argv) == 0
        said = " ".join(capsys.readouterr().out.split())
        made = open_dataset(out).tokenizer()
        assert 257 < made.vocab_size < 8000
        assert f"{out}: bpe-{made.vocab_size}, {made.vocab_size} ids" in said
        assert f"too little for 8,000 tokens: the tokenizer has {made.vocab_size}" in said
        assert ("(was complete)" in said) == again
    assert isinstance(made, LibraryTokenizer)
    before = LibraryTokenizer(made.content, "bpe-8000", made.end)  # as it was called before
    before.save(tmp_path / "before")
    loaded = load_tokenizer(tmp_path / "before")
    assert (loaded.name, loaded.vocab_size) == ("bpe-8000", made.vocab_size)
    assert same_ids(loaded, made)


def test_training_is_repeatable_and_has_every_byte() -> None:
    one, two = train_tokenizer(iter(TEXT), 300), train_tokenizer(iter(TEXT), 300)
    assert one.fingerprint == two.fingerprint
    assert one.vocab_size == 300
    assert one.decode(one.encode("ωΩ\x00\x7f")) == "ωΩ\x00\x7f"
    assert len(one.encode(TEXT[0])) < len(TEXT[0])
    with pytest.raises(UserError, match="must be at least 257"):
        train_tokenizer(iter(TEXT), 200)


def test_trained_apart_it_is_the_same() -> None:
    apart = train_apart(iter(TEXT), 300)
    assert apart.fingerprint == train_tokenizer(iter(TEXT), 300).fingerprint
    assert not multiprocessing.active_children()
    with pytest.raises(UserError, match="must be at least 257"):
        train_apart(iter(TEXT), 200)


@pytest.mark.parametrize("at", ["the first text", "the end"])
def test_a_training_that_dies_is_told_in_one_line(at: str) -> None:
    """As where the system has no memory left for it."""

    def texts() -> Iterator[str]:
        yield TEXT[0]
        (training,) = multiprocessing.active_children()
        training.kill()
        training.join()
        if at == "the first text":
            yield TEXT[1]

    with pytest.raises(UserError, match=r"^the process that trained the tokenizer has died"):
        train_apart(texts(), 300)
    assert not multiprocessing.active_children()


PANICS = {**byte_tokenizer_json(), "normalizer": {"type": "Precompiled"}}
PANICS["normalizer"]["precompiled_charsmap"] = "AAAA"
"""A file over which the Rust of the library panics, which is no Exception of Python's."""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "{}", "is not a tokenizer"),
        ("x.json", "\x00", "is not a tokenizer"),
        ("x.json", json.dumps(PANICS), "is not a tokenizer"),
        ("x.model", "nonsense", "is not a SentencePiece model"),
        ("missing.json", None, "does not exist"),
        ("missing.model", None, "cannot read tokenizer"),
        ("folder/", None, "holds no tokenizer"),
    ],
)
def test_what_is_no_tokenizer_is_refused(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        load_tokenizer(path)
    assert "\n" not in str(caught.value)


def test_a_run_in_place_of_its_tokenizer_is_told_where_that_is(tmp_path: Path) -> None:
    ByteTokenizer().save(tmp_path / "run" / "tokenizer")
    with pytest.raises(UserError, match=r"did you mean '.*/run/tokenizer'\?$"):
        load_tokenizer(tmp_path / "run")


def test_a_text_that_cannot_be_encoded_is_refused_in_one_line() -> None:
    """A list of words, without the one that stands for all others."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"sphere": 0}, unk_token="[UNK]"))
    words.add_special_tokens(["</s>"])
    tokenizer = LibraryTokenizer(words.to_str(), "words")
    assert tokenizer.encode("sphere") == [0]
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(UserError, match=r"^tokenizer words cannot encode a text: .*\[UNK\]"):
            encode("cube")


def test_a_hub_name_without_network_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    code = (
        "from spherelm.data.tokenizer_load import load_tokenizer\n"
        "from spherelm.errors import UserError\n"
        "try: load_tokenizer('gpt2')\n"
        "except UserError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (
        "tokenizer 'gpt2' is not a file, nor can it be loaded from the Hugging Face hub"
        in run.stdout
    )
    assert run.stdout.count("\n") == 1


@pytest.mark.parametrize("package", ["tokenizers", "sentencepiece"])
def test_a_missing_package_is_named(
    files: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # what import finds when it is not there
    path = files / ("bpe.json" if package == "tokenizers" else "llama.model")
    with pytest.raises(UserError, match=r"pip install 'spherelm\[data\]'"):
        load_tokenizer(path)
    assert load_tokenizer("bytes").vocab_size == 257


def test_texts_are_neither_cut_off_nor_filled_up() -> None:
    """As a file may ask for that was saved in the middle of somebody's fine-tuning."""
    plain = train_tokenizer(iter(["some words, and some more words"]), 270)
    values = json.loads(plain.content)
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    for change in ({"truncation": cut}, {"padding": pad}):
        odd = LibraryTokenizer(json.dumps(values | change), "odd")
        for text in ("a", "some words and more of them"):
            assert odd.encode(text) == plain.encode(text)
            assert odd.encode_batch([text])[0].tolist() == plain.encode(text)


def test_a_fingerprint_knows_where_its_parts_end() -> None:
    assert fingerprint_of("ab", "c") != fingerprint_of("a", "bc")
    assert fingerprint_of("ab", b"c") == fingerprint_of(b"ab", "c")
