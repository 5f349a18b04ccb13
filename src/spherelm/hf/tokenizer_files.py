"""Tokenizer files for Hugging Face that give the same ids as spherelm's tokenizer.

Both encode plain text only: no tokens are added before or after it, and a special token spelled out
in the text is encoded like any other text (`split_special_tokens`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.data.byte_level import END_OF_TEXT, byte_tokenizer_json
from spherelm.data.tokenizer import DESCRIPTION, ByteTokenizer, Tokenizer
from spherelm.data.tokenizer_library import LibraryTokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, context: int) -> None:
    """Write the tokenizer for transformers and for spherelm itself."""
    if isinstance(tokenizer, LibraryTokenizer):
        tokenizer = tokenizer.without_marks()  # training did not see any
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
