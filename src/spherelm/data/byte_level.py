"""The byte tokenizer in the format of the `tokenizers` library: a byte-level BPE without merges."""

from __future__ import annotations

from typing import Any

END_OF_TEXT = "<|endoftext|>"
"""The text of the token that ends a document, id 256."""


def byte_tokenizer_json() -> dict[str, Any]:
    """The content of its `tokenizer.json`: id = byte, 256 ends a document."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    end = {"id": 256, "content": END_OF_TEXT, "special": True}
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

    Printable bytes are represented by themselves, the others by characters from U+0100 on.
    """
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    return [chr(byte if byte in prints else next(substitutes)) for byte in range(256)]
