"""GPT beside nGPT: both trained on the same tokens, then held against each other.

The question is the paper's: how many tokens does nGPT need to reach the validation loss at which
GPT ends? Both runs have the same size, steps, batches, order of data and seed; each has the
learning rate that suits it. All is read back from the two run directories, so that an interrupted
comparison goes on where it stopped.

    DIR/gpt/  DIR/ngpt/    run directories
    result.json            the numbers
    report.html, *.png     the pictures
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spherelm import presets
from spherelm.config import DataConfig, RunConfig, TrainConfig
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.model.config import Arch
from spherelm.model.flops import count_parameters
from spherelm.train.device import choose_device
from spherelm.train.loop import TrainResult, train
from spherelm.train.memory import check_fits
from spherelm.train.metrics import read_metrics
from spherelm.train.reporter import Reporter
from spherelm.train.resume import check_same_run
from spherelm.train.run_dir import Resume, RunDir

ARCHS: tuple[Arch, ...] = ("gpt", "ngpt")
NAMES: dict[Arch, str] = {"gpt": "GPT", "ngpt": "nGPT"}
RESULT = "result.json"
PRODUCTS = (RESULT, "report.html", "loss.png", "loss-seconds.png", "alpha.png")
"""Files beside the two run directories."""

Curve = Sequence[tuple[float, float]]
"""(tokens, validation loss) of each evaluation."""


# --- what is trained -----------------------------------------------------------------------------


def configure(
    preset: str,
    train: TrainConfig,
    data: DataConfig,
    vocab_size: int,
    rates: Mapping[Arch, float | None],
) -> dict[Arch, RunConfig]:
    """The two runs of a comparison; `rates` are learning rates in place of the preset's.

    Where `train.steps` is not the preset's, warmup keeps its share of the run.
    """
    runs: dict[Arch, RunConfig] = {}
    for arch in ARCHS:
        base = presets.get(f"{arch}-{preset}")
        warmup = round(base.optim.warmup_steps * train.steps / base.train.steps)
        lr = rates[arch]
        runs[arch] = RunConfig(
            model=dataclasses.replace(base.model, vocab_size=vocab_size),
            optim=dataclasses.replace(
                base.optim, warmup_steps=warmup, lr=base.optim.lr if lr is None else lr
            ),
            data=data,
            train=train,
        )
    return runs


def check_memory(runs: Mapping[Arch, RunConfig]) -> None:
    """Refuse a comparison whose runs do not fit, before anything of it is written."""
    for run in runs.values():
        check_fits(run, choose_device(run.train.device))


def claim(out: Path, runs: Mapping[Arch, RunConfig], *, resume: Resume, force: bool) -> None:
    """Make `out` ours, or refuse; what an earlier comparison left is removed under `force`."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; --out must be a folder")
    begun = [arch for arch in ARCHS if RunDir(out / arch).holds_a_run()]
    if force:
        for arch in begun:
            shutil.rmtree(out / arch)
    elif begun and resume == "never":
        raise UserError(
            f"{out} already holds a comparison; continue it with --resume auto, "
            f"or replace it with --force"
        )
    elif begun:
        for arch in begun:
            _check_same(RunDir(out / arch).read_config(), runs[arch])
    elif out.is_dir() and any(out.iterdir()):
        raise UserError(
            f"{out} is not empty and holds no comparison; choose another --out, or --force"
        )
    for name in PRODUCTS:  # they would speak of another comparison until this one ends
        (out / name).unlink(missing_ok=True)


def _check_same(before: RunConfig, now: RunConfig) -> None:
    check_same_run(before, now)
    if before.train.steps != now.train.steps:  # one run may go on for longer, a comparison not
        raise UserError(
            f"cannot resume with train.steps = {now.train.steps}: the comparison began with "
            f"{before.train.steps}; leave it as it was, or start anew with another --out"
        )


def train_both(
    runs: Mapping[Arch, RunConfig],
    dataset: TokenDataset,
    out: Path,
    reporter: Callable[[Arch], Reporter],
) -> TrainResult | None:
    """Train GPT, then nGPT, each from its newest checkpoint; how a run ended that was stopped.

    One after the other, so that each has the whole machine and their times can be compared.
    """
    for arch in ARCHS:
        result = train(runs[arch], dataset, out / arch, resume="auto", reporter=reporter(arch))
        if not result.finished:
            return result
    return None


# --- what came out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One model of a comparison, read back from its run directory."""

    arch: Arch
    config: RunConfig
    curve: Curve
    seconds_per_step: float
    """Median over the steps: the first ones, and those that something disturbed, do not count."""
    bits_per_byte: float | None
    alpha: Mapping[str, Sequence[float]]
    """Final mean of the eigen learning rates of each layer, by block (nGPT)."""
    environment: Mapping[str, Any]

    @property
    def name(self) -> str:
        return NAMES[self.arch]

    @property
    def final_loss(self) -> float:
        """Validation loss after the last step."""
        return self.curve[-1][1]

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return self.config.train.steps * self.config.tokens_per_step

    def seconds_for(self, tokens: float) -> float:
        """Time to train on that many tokens, evaluations and checkpoints left out."""
        return tokens / self.config.tokens_per_step * self.seconds_per_step


@dataclass(frozen=True)
class Sample:
    """A text that a model was asked to go on with."""

    prompt: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """GPT and nGPT after the same number of tokens."""

    preset: str
    data: str
    gpt: Side
    ngpt: Side
    samples: Mapping[Arch, Sample]
    """Empty where the data has no tokenizer."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.gpt, self.ngpt

    @property
    def tokens_to_gpt_loss(self) -> float | None:
        """Tokens after which nGPT was as good as GPT at its end; None if it never was."""
        return tokens_to_reach(self.ngpt.curve, self.gpt.final_loss)

    @property
    def speedup_tokens(self) -> float | None:
        """GPT's tokens over those nGPT needed for the same loss."""
        needed = self.tokens_to_gpt_loss
        return None if needed is None else self.gpt.tokens / needed

    @property
    def speedup_seconds(self) -> float | None:
        """The same in time on this machine, where a step of nGPT takes longer."""
        needed = self.tokens_to_gpt_loss
        if needed is None:
            return None
        return self.gpt.seconds_for(self.gpt.tokens) / self.ngpt.seconds_for(needed)

    def as_json(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "data": self.data,
            "seed": self.gpt.config.train.seed,
            "tokens": self.gpt.tokens,
            "tokens_to_gpt_loss": self.tokens_to_gpt_loss,
            "speedup_tokens": self.speedup_tokens,
            "speedup_seconds": self.speedup_seconds,
            **{side.arch: _side_as_json(side, self.samples) for side in self.sides},
        }


def _side_as_json(side: Side, samples: Mapping[Arch, Sample]) -> dict[str, Any]:
    return {
        "final_loss": side.final_loss,
        "final_bits_per_byte": side.bits_per_byte,
        "seconds_per_step": side.seconds_per_step,
        "parameters": count_parameters(side.config.model).total,
        "steps": side.config.train.steps,
        "lr": side.config.optim.lr,
        "curve": [{"tokens": tokens, "val_loss": loss} for tokens, loss in side.curve],
        "sample": dataclasses.asdict(samples[side.arch]) if side.arch in samples else None,
    }


def tokens_to_reach(curve: Curve, loss: float) -> float | None:
    """Tokens at which a curve first comes down to `loss`, between evaluations on a straight line.

    None where it never does. Where its first point is already there, that point's tokens: an upper
    bound, since nothing was measured before it.
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
    """What the run directory of a finished run says."""
    metrics = read_metrics(run_dir.metrics)
    evaluated = [line for line in metrics if "val_loss" in line]
    last = evaluated[-1]
    seconds = [line["seconds"] for line in read_metrics(run_dir.speed)]
    return Side(
        arch=arch,
        config=run_dir.read_config(),
        curve=[(line["tokens"], line["val_loss"]) for line in evaluated],
        seconds_per_step=statistics.median(seconds),
        bits_per_byte=last.get("val_bits_per_byte"),
        alpha={name: last[name] for name in ("alpha_attn", "alpha_mlp") if name in last},
        environment=json.loads(run_dir.env.read_text(encoding="utf-8")),
    )


def read_comparison(out: Path, preset: str, dataset: TokenDataset) -> Comparison:
    """The comparison that two finished runs in `out` make."""
    from spherelm.experiments.samples import sample_from

    gpt, ngpt = (read_side(RunDir(out / arch), arch) for arch in ARCHS)
    path = gpt.config.data.path
    return Comparison(
        preset=preset,
        data="the built-in corpus" if path is None else path,
        gpt=gpt,
        ngpt=ngpt,
        samples=sample_from({arch: RunDir(out / arch) for arch in ARCHS}, dataset),
    )
