"""The exported tokenizer gives the same ids under transformers as under spherelm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.data.tokenizer import DESCRIPTION, ByteTokenizer, Tokenizer
from spherelm.data.tokenizer_library import train_tokenizer
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.hf.tokenizer_files import write_tokenizer
from spherelm.saved import load_model
from tests.saved_runs import byte_model, write_run

transformers = pytest.importorskip("transformers")

TEXTS = [
    "def main():\n\treturn 'naïve' # 日本語 🙂\r\n",
    "  leading and   inner   spaces  ",
    "<|endoftext|> is only text here",
    "".join(map(chr, range(1, 256))),
    "",
]


def byte_level_bpe() -> Tokenizer:
    return train_tokenizer(iter(["the cat and the hat", "that bat sat"] * 20), 300)


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), byte_level_bpe()], ids=["bytes", "bpe"])
def test_same_ids_and_same_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, tokenizer, context=64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert theirs.eos_token_id == ours.end_of_document == tokenizer.end_of_document
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert theirs(text)["input_ids"] == ids == ours.encode(text)
        assert theirs.decode(ids) == text == ours.decode(ids)


def test_marks_of_a_chat_are_tokens_where_they_are_asked_for(tmp_path: Path) -> None:
    """As docs/huggingface.md says it; without that they are text, as for spherelm."""
    write_tokenizer(tmp_path, byte_level_bpe(), context=64)
    lengths = []
    for split in ({}, {"split_special_tokens": False}):
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, **split)
        theirs.add_tokens(["<|user|>"], special_tokens=True)
        theirs.chat_template = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}"
        ids = theirs.apply_chat_template([{"role": "user", "content": "b"}], return_dict=False)
        assert theirs.decode(ids) == "<|user|>b"
        lengths.append(len(ids))
    assert lengths == [len("<|user|>b"), 2]


def test_marks_around_a_text_are_dropped(tmp_path: Path) -> None:
    """A Llama-like tokenizer.json would begin each text with a mark that training never saw."""
    source = byte_level_bpe()
    source.save(tmp_path / "source")
    file = tmp_path / "source" / "tokenizer.json"
    piece = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    processor = {
        "type": "TemplateProcessing",
        "single": [piece, sequence],
        "pair": [piece, sequence, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
        },
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), "post_processor": processor}))
    (tmp_path / "source" / DESCRIPTION).unlink()  # as one of Hugging Face's
    marked = load_tokenizer(tmp_path / "source")
    write_tokenizer(tmp_path / "out", marked, context=64)
    assert load_tokenizer(tmp_path / "out").fingerprint == marked.fingerprint  # the same ids
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs("the cat")["input_ids"] == source.encode("the cat")


@pytest.mark.parametrize(
    "kind", ["bpe", "bpe without bytes", "bpe without extra spaces", "unigram"]
)
def test_a_sentencepiece_that_transformers_reads_otherwise_is_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    text = "a cat and a bat sat on a mat, and that hat was a rat; who then saw the other three?"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.replace(" ", " " * n) for n in (1, 2) * 9),
        model_prefix=str(tmp_path / "sp"),
        vocab_size=300,
        byte_fallback=kind != "bpe without bytes",
        hard_vocab_limit=False,
        model_type=kind.split()[0],
        normalization_rule_name="identity",
        remove_extra_whitespaces=kind == "bpe without extra spaces",
        minloglevel=2,
    )
    run = write_run(tmp_path / "run", byte_model(vocab_size=320))
    shutil.rmtree(run / "tokenizer")
    load_tokenizer(tmp_path / "sp.model").save(run / "tokenizer")
    assert main(["export", str(run), "--out", str(tmp_path / "hf")]) == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf", trust_remote_code=True)
    ours, texts = load_tokenizer(tmp_path / "hf"), (text, "a  b", "that\nhat")
    for name in ("spherelm.json", DESCRIPTION):  # as a Llama of transformers 4 has one
        (tmp_path / "hf" / name).unlink()
    assert load_model(tmp_path / "hf").tokenizer.encode(text) == ours.encode(text)
    alike = all(theirs(t)["input_ids"] == ours.encode(t) for t in texts)
    assert alike == (kind == "bpe")
    assert ("encodes many texts differently" in capsys.readouterr().err) == (not alike)
