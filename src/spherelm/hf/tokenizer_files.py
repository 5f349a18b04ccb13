"""Tokenizer files for Hugging Face that give the same ids as spherelm's tokenizer.

Text is text in both: nothing is put before or after it, and a special token spelt out in a text is
encoded character by character (`split_special_tokens`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.data.tokenizer import DESCRIPTION, ByteTokenizer, Tokenizer
from spherelm.data.tokenizer_library import LibraryTokenizer

END_OF_TEXT = "<|endoftext|>"


def write_tokenizer(folder: Path, tokenizer: Tokenizer, context: int) -> None:
    """Write the tokenizer for transformers and for spherelm itself."""
    if isinstance(tokenizer, LibraryTokenizer):
        tokenizer = tokenizer.without_marks()  # training saw none
    tokenizer.save(folder)
    if isinstance(tokenizer, ByteTokenizer):
        durable.write_json(folder / "tokenizer.json", byte_tokenizer_json())
        end = END_OF_TEXT
    else:
        end = records.read(folder / DESCRIPTION)["end_of_document"]
    sentencepiece = (folder / "tokenizer.model").is_file()
    settings: dict[str, Any] = {
        "tokenizer_class": "LlamaTokenizer" if sentencepiece else "PreTrainedTokenizerFast",
        "eos_token": end,
        "pad_token": end,
        "model_max_length": context,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    if sentencepiece:
        settings |= {"add_bos_token": False, "add_eos_token": False, "legacy": False}
    durable.write_json(folder / "tokenizer_config.json", settings)


def byte_tokenizer_json() -> dict[str, Any]:
    """`ByteTokenizer` as a byte-level BPE that merges nothing: id = byte, 256 ends a document."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    end = {"id": ByteTokenizer.end_of_document, "content": END_OF_TEXT, "special": True}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**end, **plain}],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in enumerate(_byte_alphabet())},
            "merges": [],
        },
    }


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level BPE.

    Bytes that print stand for themselves, the others for the characters from U+0100 on, in order.
    """
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    return [chr(byte if byte in prints else next(substitutes)) for byte in range(256)]
