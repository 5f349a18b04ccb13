"""A sample of text from each trained model: the same prompt, the same random numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spherelm.data.dataset import TokenDataset
from spherelm.generation.engine import Engine
from spherelm.generation.settings import Sampling
from spherelm.model.config import Arch
from spherelm.ops.device import choose_device
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model

PROMPT_TOKENS = 32
LONGEST = 256
"""New tokens at most; fewer where prompt and text must fit into a shorter context."""
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Sample:
    """A text that a model was asked to go on with."""

    prompt: str
    text: str


def sample_from(runs: Mapping[Arch, RunDir], dataset: TokenDataset) -> dict[Arch, Sample]:
    """Each model's way to go on with the beginning of the validation text.

    Empty where the data has no tokenizer to write text with.
    """
    if not any(run_dir.tokenizer.is_dir() for run_dir in runs.values()):
        return {}
    samples: dict[Arch, Sample] = {}
    for arch, run_dir in runs.items():
        model, tokenizer, config = load_model(run_dir.root)
        model.to(choose_device(config.train.device)).eval()
        length = min(PROMPT_TOKENS, model.config.context // 2)
        prompt = np.asarray(dataset.val.shards[0].tokens[:length]).tolist()
        (ids,) = Engine(model).generate(
            [prompt],
            max_new_tokens=min(LONGEST, model.config.context - len(prompt)),
            sampling=Sampling(temperature=TEMPERATURE),
            stop_ids={tokenizer.end_of_document},
        )
        samples[arch] = Sample(*(printable(tokenizer.decode(part)) for part in (prompt, ids)))
    return samples


def printable(text: str) -> str:
    """Control characters made visible: a model of bytes may write what would upset a terminal."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )
