"""A sample of text from a trained model: how it continues a prompt."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spherelm.data.dataset import TokenDataset
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.generation.engine import Engine
from spherelm.generation.settings import Sampling
from spherelm.generation.text import INCOMPLETE, encode_prompt, generate_text
from spherelm.model.transformer import Transformer
from spherelm.saved import Saved, find_tokenizer, open_own_data, read_weights, reading

PROMPT_TOKENS = 32
LONGEST = 256
"""The most new tokens; fewer if the context is too short for prompt and text."""
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Sample:
    """A prompt, and the text that a model wrote after it."""

    prompt: str
    text: str


def write_sample(
    model: Transformer, tokenizer: Tokenizer, prompt: Sequence[int], most: int = LONGEST
) -> Sample:
    """What a model writes after a prompt, with the same random numbers every time."""
    (text,) = generate_text(
        Engine(model),
        tokenizer,
        [prompt],
        max_new_tokens=min(most, model.config.context - len(prompt)),
        sampling=Sampling(temperature=TEMPERATURE),
    )
    return Sample(printable(tokenizer.decode(prompt)), printable(text))


def validation_prompt(dataset: TokenDataset, tokenizer: Tokenizer, context: int) -> list[int]:
    """The beginning of the validation text: whole characters, at most half a context."""
    length = min(PROMPT_TOKENS, context // 2)
    ids: list[int] = np.asarray(dataset.val.shards[0].tokens[:length]).tolist()
    while len(ids) > 1 and tokenizer.decode(ids).endswith(INCOMPLETE):
        ids.pop()
    return ids


def sample_of_run(folder: str, most: int = LONGEST) -> Sample | str:
    """What the newest checkpoint of a run writes, or why there is no sample. Computed on the CPU,
    to leave the GPU to training.

    The prompt is the beginning of its validation text, or a new document if its data is gone.
    """

    def read(saved: Saved) -> tuple[Transformer, Tokenizer, list[int]]:
        tokenizer = find_tokenizer(saved)
        prompt = encode_prompt(tokenizer, "")
        with contextlib.suppress(UserError):
            dataset = open_own_data(saved)
            if dataset.has_val:
                prompt = validation_prompt(dataset, tokenizer, saved.config.model.context)
        return read_weights(saved), tokenizer, prompt

    try:
        model, tokenizer, prompt = reading(folder, read)
    except UserError as error:
        return str(error)
    return write_sample(model.eval(), tokenizer, prompt, most)


def printable(text: str) -> str:
    """Make control characters visible: a byte model may write some that would upset a terminal.

    Windows line endings become newlines.
    """
    text = text.replace("\r\n", "\n")
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )
