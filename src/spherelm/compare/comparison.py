"""GPT beside nGPT: the results of their two runs, read back from the run directories.

The question is the paper's: how many tokens does nGPT need to reach GPT's final validation loss?
The answer may be that GPT was ahead, or that the two differ by no more than seeds do.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spherelm import records
from spherelm.compare.recorded import Recorded, is_tuned, recorded
from spherelm.config import RunConfig
from spherelm.data.dataset import TokenDataset
from spherelm.model.config import ARCH_NAMES, ARCHS, Arch
from spherelm.model.flops import count_parameters
from spherelm.ops.device import choose_device
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model
from spherelm.training.report.samples import Sample, validation_prompt, write_sample

Curve = Sequence[tuple[float, float]]
"""(tokens, validation loss) of each evaluation."""
Outcome = Literal["ngpt", "gpt", "neither"]
SOONER = 1.005
"""The smallest factor that does not round to 1.00."""


@dataclass(frozen=True)
class Side:
    """One model of a comparison, read back from its run directory."""

    arch: Arch
    config: RunConfig
    curve: Curve
    seconds_per_step: float
    """The median, so that the slow first steps and disturbed ones do not count."""
    bits_per_byte: float | None
    alpha: Mapping[str, Sequence[float]]
    """Final mean of the eigen learning rates of each layer, by block (nGPT)."""
    environment: Mapping[str, Any]

    @property
    def name(self) -> str:
        return ARCH_NAMES[self.arch]

    @property
    def final_loss(self) -> float:
        """Validation loss after the last step."""
        return self.curve[-1][1]

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return self.config.tokens

    def seconds_for(self, tokens: float) -> float:
        """Time to train on that many tokens, without evaluations and checkpoints."""
        return tokens / self.config.tokens_per_step * self.seconds_per_step


@dataclass(frozen=True)
class Crossing:
    """Where the model ahead reached the other one's final loss."""

    first: Side
    """The model ahead."""
    second: Side
    tokens: float
    """How many the model ahead needed for that."""

    @property
    def speedup_tokens(self) -> float:
        """The other model's tokens divided by those the model ahead needed for the same loss."""
        return self.second.tokens / self.tokens

    @property
    def is_sooner(self) -> bool:
        """Whether that factor is above 1.00; it is not if only the end was evaluated."""
        return self.speedup_tokens >= SOONER

    @property
    def speedup_seconds(self) -> float:
        """The same factor in time on this machine, where a step of nGPT takes longer."""
        return self.second.seconds_for(self.second.tokens) / self.first.seconds_for(self.tokens)


@dataclass(frozen=True)
class Comparison:
    """GPT and nGPT after the same number of tokens."""

    preset: str
    data: str
    gpt: Side
    ngpt: Side
    samples: Mapping[Arch, Sample]
    """Empty if the data has no tokenizer."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.gpt, self.ngpt

    @property
    def record(self) -> Recorded | None:
        """How such runs end with other seeds, if that was recorded."""
        return recorded(self.preset, {side.arch: side.config for side in self.sides})

    @property
    def lead(self) -> float:
        """How far nGPT ends below GPT; negative if GPT is ahead."""
        return self.gpt.final_loss - self.ngpt.final_loss

    @property
    def outcome(self) -> Outcome:
        """Which model ended lower by more than chance, that is, two deviations over recorded seeds.

        If no seeds were recorded, simply the one that ended lower.
        """
        chance = 0.0 if self.record is None else 2 * self.record.noise
        if abs(self.lead) <= chance:
            return "neither"
        return "ngpt" if self.lead > 0 else "gpt"

    @property
    def crossing(self) -> Crossing | None:
        """Where the model that ended lower passed the other's final loss; None if neither did."""
        if self.outcome == "neither":
            return None
        first, second = self.sides if self.outcome == "gpt" else (self.ngpt, self.gpt)
        tokens = tokens_to_reach(first.curve, second.final_loss)
        return None if tokens is None else Crossing(first, second, tokens)

    def as_json(self) -> dict[str, Any]:
        crossing = self.crossing
        return {
            "preset": self.preset,
            "data": self.data,
            "seed": self.gpt.config.train.seed,
            "tokens": self.gpt.tokens,
            "outcome": self.outcome,
            "lead": self.lead,
            "noise": None if self.record is None else self.record.noise,
            "tokens_needed": None if crossing is None else crossing.tokens,
            "speedup_tokens": None if crossing is None else crossing.speedup_tokens,
            "speedup_seconds": None if crossing is None else crossing.speedup_seconds,
            **{side.arch: self._side_as_json(side) for side in self.sides},
        }

    def _side_as_json(self, side: Side) -> dict[str, Any]:
        sample = self.samples.get(side.arch)
        return {
            "final_loss": side.final_loss,
            "final_bits_per_byte": side.bits_per_byte,
            "seconds_per_step": side.seconds_per_step,
            "parameters": count_parameters(side.config.model).total,
            "steps": side.config.train.steps,
            "lr": side.config.optim.lr,
            "tuned": is_tuned(self.preset, side.config),
            "curve": [{"tokens": tokens, "val_loss": loss} for tokens, loss in side.curve],
            "sample": None if sample is None else dataclasses.asdict(sample),
        }


def tokens_to_reach(curve: Curve, loss: float) -> float | None:
    """Tokens at which a curve first reaches `loss`, interpolated linearly between evaluations.

    None if it never does. If its first point is already there, that point's tokens: an upper bound,
    since nothing was measured before.
    """
    before: tuple[float, float] | None = None
    for tokens, value in curve:
        if value <= loss:
            if before is None:
                return tokens
            tokens_0, value_0 = before
            return tokens_0 + (tokens - tokens_0) * (value_0 - loss) / (value_0 - value)
        before = tokens, value
    return None


def read_side(run_dir: RunDir, arch: Arch) -> Side:
    """One side, read from the directory of a finished run."""
    evaluated = [line for line in read_metrics(run_dir.metrics) if "val_loss" in line]
    timed = read_metrics(run_dir.speed)
    for file, lines in ((run_dir.metrics, evaluated), (run_dir.speed, timed)):
        if not lines:
            raise records.damaged(file, "it has none of the lines of a finished run")
    last = evaluated[-1]
    seconds = [records.field(line, "seconds", (int, float), run_dir.speed) for line in timed]
    return Side(
        arch=arch,
        config=run_dir.read_config(),
        curve=[(line["tokens"], line["val_loss"]) for line in evaluated],
        seconds_per_step=statistics.median(seconds),
        bits_per_byte=last.get("val_bits_per_byte"),
        alpha={name: last[name] for name in ("alpha_attn", "alpha_mlp") if name in last},
        environment=records.read(run_dir.env),
    )


def read_comparison(out: Path, preset: str, dataset: TokenDataset) -> Comparison:
    """The comparison of the two finished runs in `out`."""
    gpt, ngpt = (read_side(RunDir(out / arch), arch) for arch in ARCHS)
    path = gpt.config.data.path
    return Comparison(
        preset=preset,
        data="the built-in corpus" if path is None else path,
        gpt=gpt,
        ngpt=ngpt,
        samples=_samples(out, dataset),
    )


def _samples(out: Path, dataset: TokenDataset) -> dict[Arch, Sample]:
    """Each model's continuation of the beginning of the validation text, with the same random
    numbers; empty if the data has no tokenizer."""
    samples: dict[Arch, Sample] = {}
    if not any(RunDir(out / arch).tokenizer.is_dir() for arch in ARCHS):
        return samples
    for arch in ARCHS:
        model, tokenizer, config = load_model(out / arch)
        model.to(choose_device(config.train.device)).eval()
        prompt = validation_prompt(dataset, tokenizer, model.config.context)
        samples[arch] = write_sample(model, tokenizer, prompt)
    return samples
