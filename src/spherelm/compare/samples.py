"""A sample of text from each trained model: the same prompt, the same random numbers."""

from __future__ import annotations

from collections.abc import Mapping

from spherelm.data.dataset import TokenDataset
from spherelm.model.config import Arch
from spherelm.ops.device import choose_device
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model
from spherelm.training.report.samples import Sample, validation_prompt, write_sample


def sample_from(runs: Mapping[Arch, RunDir], dataset: TokenDataset) -> dict[Arch, Sample]:
    """Each model's continuation of the beginning of the validation text; empty if the data has no
    tokenizer."""
    if not any(run_dir.tokenizer.is_dir() for run_dir in runs.values()):
        return {}
    samples: dict[Arch, Sample] = {}
    for arch, run_dir in runs.items():
        model, tokenizer, config = load_model(run_dir.root)
        model.to(choose_device(config.train.device)).eval()
        prompt = validation_prompt(dataset, tokenizer, model.config.context)
        samples[arch] = write_sample(model, tokenizer, prompt)
    return samples
