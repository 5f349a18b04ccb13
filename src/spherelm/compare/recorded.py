"""What the recorded sweep says about a preset: where its runs end, and how far seeds move that.

docs/results/compare-sweep.csv and compare-sweep-muon.csv have every run; a test checks the numbers
here against them.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.model.config import Arch


@dataclass(frozen=True)
class Recorded:
    """The tuned runs of a preset on the built-in corpus, with seeds not used for tuning."""

    losses: Mapping[Arch, Sequence[float]]
    """Final validation losses; both models have the same seeds, in the same order."""

    @property
    def leads(self) -> list[float]:
        """How far nGPT ended below GPT, seed by seed."""
        return [gpt - ngpt for gpt, ngpt in zip(*self.losses.values(), strict=True)]

    @property
    def noise(self) -> float:
        """Standard deviation of the lead, that is, how far a seed alone moves it."""
        return statistics.stdev(self.leads)

    def ends(self, arch: Arch) -> str:
        """1.460 ± 0.030: mean and standard deviation."""
        losses = self.losses[arch]
        return f"{statistics.fmean(losses):.3f} \u00b1 {statistics.stdev(losses):.3f}"


RECORDED: Mapping[str, Recorded] = {
    "nano": Recorded(
        losses={
            "gpt": (1.526, 1.535, 1.538),
            "ngpt": (1.412, 1.383, 1.443),
        }
    ),
    "nano-muon": Recorded(
        losses={
            "gpt": (1.229, 1.245, 1.23),
            "ngpt": (1.225, 1.238, 1.256),
        }
    ),
}


def recorded(preset: str, runs: Mapping[Arch, RunConfig]) -> Recorded | None:
    """The record for these runs, if they match the preset in everything that matters."""
    if preset not in RECORDED or not all(is_tuned(preset, run) for run in runs.values()):
        return None
    return RECORDED[preset]


def is_tuned(preset: str, run: RunConfig) -> bool:
    """Whether every value of a run is what the recorded sweep found for its model."""
    if preset not in RECORDED:
        return False
    swept = presets.of_size(preset, run.model.arch)
    counts = attrgetter("steps", "batch_size", "weight_storage")
    same_training = counts(run.train) == counts(swept.train)
    return same_training and dataclasses.replace(run, train=swept.train) == swept
