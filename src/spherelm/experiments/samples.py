"""A sample of text from each trained model: the same prompt, the same random numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

import numpy as np

from spherelm.data.dataset import TokenDataset, TokenSplit
from spherelm.errors import UserError
from spherelm.experiments.compare import Sample
from spherelm.model.config import Arch
from spherelm.model.transformer import Transformer
from spherelm.train import checkpoint as checkpoints
from spherelm.train.device import choose_device
from spherelm.train.run_dir import RunDir

PROMPT_TOKENS = 32
LONGEST = 256
"""New tokens at most; fewer where prompt and text must fit into a shorter context."""
TEMPERATURE = 0.8


def sample_from(runs: Mapping[Arch, RunDir], dataset: TokenDataset) -> dict[Arch, Sample]:
    """Each model's way to go on with the beginning of the validation text.

    Empty where the data has no tokenizer to write text with.
    """
    from spherelm.generate.engine import generate

    try:
        tokenizer = dataset.tokenizer()
    except UserError:
        return {}
    samples: dict[Arch, Sample] = {}
    for arch, run_dir in runs.items():
        model = trained_model(run_dir)
        prompt = first_tokens(dataset.val, min(PROMPT_TOKENS, model.config.context // 2))
        (ids,) = generate(
            model,
            [prompt],
            max_new_tokens=min(LONGEST, model.config.context - len(prompt)),
            temperature=TEMPERATURE,
            stop_ids={tokenizer.end_of_document},
        )
        samples[arch] = Sample(*(printable(tokenizer.decode(part)) for part in (prompt, ids)))
    return samples


def trained_model(run_dir: RunDir) -> Transformer:
    """The model of a run's newest checkpoint, on the device the run asked for."""
    config = run_dir.read_config()
    checkpoint = checkpoints.latest(run_dir.checkpoints)
    if checkpoint is None:
        raise UserError(f"{run_dir.root} has no checkpoint; continue the run with --resume auto")
    checkpoints.verify(checkpoint)
    model = Transformer(config.model)
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    checkpoints.load_tensors(checkpoint, tensors)
    return model.to(choose_device(config.train.device)).eval()


def first_tokens(split: TokenSplit, n: int) -> list[int]:
    """The first `n` tokens of a split."""
    tokens: list[int] = np.asarray(split.shards[0].tokens[:n]).tolist()
    return tokens


def printable(text: str) -> str:
    """Control characters made visible: a model of bytes may write what would upset a terminal."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )
