"""`spherelm train`: one run, from a preset, a TOML file and flags, in that order."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spherelm import cpu_isa, presets
from spherelm.config import (
    OWN_RATES,
    DataConfig,
    OptimConfig,
    ParallelConfig,
    RunConfig,
    TrainConfig,
)
from spherelm.config_io import flatten, override, read_toml, toml_values
from spherelm.distributed import launcher
from spherelm.errors import UserError
from spherelm.flags import SHORT_FORMS, given, long_forms, parse, value_of
from spherelm.model.config import ModelConfig

if TYPE_CHECKING:
    from spherelm.data.dataset import TokenDataset
    from spherelm.saved import Saved
    from spherelm.training.loop import TrainResult

TRAIN_SHORT_FORMS = {
    "--data": "--data.path",
    "--steps": "--train.steps",
    "--lr": "--optim.lr",
    "--batch-size": "--train.batch-size",
    "--context": "--model.context",
    "--checkpoint-every": "--train.checkpoint-every",
    **SHORT_FORMS,
}
WARMUP, VOCABULARY = "optim.warmup_steps", "model.vocab_size"
"""Fields that follow from the run's length and from the data unless they are set."""


@dataclass(frozen=True)
class TrainFlags:
    """Train a GPT or an nGPT.

    Values come from the preset, then the TOML file of --config, then flags; every field of the
    configuration is a flag, and its default below is the preset's. Without a preset, --lr or a rate
    in the file, the rate, schedule and starting values are those of the nearest measured runs:
    the defaults below hold for the size of nano; for others they are printed when the run starts.

        spherelm train --data tokens --out runs/mine --steps 2000
    """

    out: str
    """The run directory to make, or to continue with --resume auto."""
    preset: str = "nano"
    """The configuration to start from, such as ngpt-0.5b-1k; a name without gpt- means nGPT."""
    config: str | None = None
    """A TOML file whose fields replace the preset's. The config.toml of a run is that run's whole
    configuration and needs no preset."""
    resume: Literal["never", "auto", "strict"] = "never"
    """auto: continue from the newest checkpoint in --out, or from the one before if that is
    damaged, or begin if there is none. strict: refuse a damaged checkpoint instead."""
    init_from: str | None = None
    """Begin with the weights of this run, checkpoint or exported folder: a new run with its shape,
    on data with its tokenizer. Without --preset or --config it also keeps its last run's
    settings."""
    force: bool = False
    """Replace the run that --out holds; a folder with anything else is refused."""
    dry_run: bool = False
    """Print the configuration, cost and expected time, and stop."""
    json: bool = False
    """Print the result as one JSON object."""
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)


def main(argv: list[str]) -> int:
    if not launcher.is_first():  # before torch is imported; the first process shows its warnings
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    argv = long_forms(argv, TRAIN_SHORT_FORMS)
    base = _base(argv)
    defaults = _sections(base.defaults)
    flags = parse(TrainFlags, argv, "train", TRAIN_SHORT_FORMS, presets.as_option, **defaults)
    if flags.model.arch == "gpt" and "model.qk_norm" in given(argv):
        raise UserError("--model.qk-norm is nGPT's; GPT's is --model.gpt-qk-norm")
    run, notes = base.run(flags)
    notes += _rates_that_stay(base.config.optim, run.optim, given(argv))
    cpu_isa.before_products(run.train.precision, run.train.device)

    from spherelm.data.open import open_dataset

    dataset = open_dataset(run.data.path)
    if VOCABULARY not in base.given:
        run = override(run, {VOCABULARY: dataset.vocab_size})
        notes += dataset.vocab_size_notes
    if flags.dry_run:
        _plan(run, dataset, flags, notes, base.source)
        return 0
    result = _train(run, dataset, flags, notes, base.source)
    if flags.json and launcher.is_first():
        checkpoint = str(result.checkpoint) if result.checkpoint else None
        report = {"run": str(Path(flags.out)), "step": result.step, "finished": result.finished}
        print(json.dumps(report | {"val_loss": result.val_loss, "checkpoint": checkpoint}))
    return 130 if result.stopped_by == signal.SIGINT else 0


def _sections(config: RunConfig | TrainFlags) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(RunConfig)}


def _rates_that_stay(
    before: OptimConfig, now: OptimConfig, told: Collection[str]
) -> tuple[str, ...]:
    """A remark if --lr leaves separate rates from the file unchanged."""
    stay = {
        f"optim.{name}": rate
        for name in OWN_RATES
        if (rate := getattr(now, name)) is not None and rate == getattr(before, name)
    }
    values = ", ".join(f"{name} {rate:g}" for name, rate in stay.items() if name not in told)
    if "optim.lr" not in told or before.lr == now.lr or not values:
        return ()
    return (f"--lr sets {now.lr:g} in place of {before.lr:g}, but not {values}",)


def _plan(
    run: RunConfig,
    dataset: TokenDataset,
    flags: TrainFlags,
    notes: tuple[str, ...],
    source: Saved | None,
) -> None:
    from spherelm.training.origin import check_start
    from spherelm.training.report.plan import print_plan

    if source is not None:
        check_start(run, dataset, source)
    if launcher.is_first():
        for note in notes:
            print(note, file=sys.stderr)
        folder = None if source is None else source.folder
        print_plan(run, dataset, as_json=flags.json, init_from=folder)


def _train(
    run: RunConfig,
    dataset: TokenDataset,
    flags: TrainFlags,
    notes: tuple[str, ...],
    source: Saved | None,
) -> TrainResult:
    if not launcher.is_first():
        warnings.simplefilter("ignore")  # the first process has the same ones and shows them

    from spherelm.folders import place
    from spherelm.training.loop import train
    from spherelm.training.report.reporter import Reporter, for_terminal

    out = Path(flags.out)
    if flags.force:
        place.check_apart(out, [flags.config])
    reporter = for_terminal(run.train.log_every) if launcher.is_first() else Reporter()
    result = train(
        run,
        dataset,
        out,
        resume=flags.resume,
        force=flags.force,
        reporter=reporter,
        init_from=source,
        notes=notes,
    )
    if result.first_step == run.train.steps:
        reporter.note(f"all {result.step} steps were taken before; for more, give --steps N")
    elif result.finished:
        loss = "" if result.val_loss is None else f"validation loss {result.val_loss:.4f}, "
        reporter.note(f"finished: {loss}saved {result.checkpoint}")
    else:
        reporter.note(
            f"stopped at step {result.step}, saved {result.checkpoint}; continue with --resume auto"
        )
    return result


@dataclass(frozen=True)
class _Base:
    """What the flags start from."""

    config: RunConfig
    given: frozenset[str]
    """Fields that a flag, the TOML file or the resumed run sets, to any value."""
    preset: RunConfig
    own: RunConfig | None
    """The configuration of the resumed run."""
    source: Saved | None = None
    """The model that a new run begins with."""
    whose: str = "the preset's"
    """Whose settings `preset` holds, in words."""
    chooses: bool = False
    """Whether the learning rate is ours to choose, because nothing sets it."""

    @property
    def defaults(self) -> RunConfig:
        """The values of fields that no flag sets."""
        return self._with_measured(_sections(self.config))[0] if self.chooses else self.config

    def run(self, flags: TrainFlags) -> tuple[RunConfig, tuple[str, ...]]:
        """The whole configuration, and remarks on values that were chosen for the user."""
        sections = _sections(flags)
        if self.chooses:
            return self._with_measured(sections)
        changes: dict[str, Any] = {}
        notes: tuple[str, ...] = ()
        if WARMUP not in self.given:
            changes["warmup_steps"], notes = self.warmup(flags.train.steps)
        own = self.preset.optim.own_rates_at(flags.optim.lr)
        if own := {n: rate for n, rate in own.items() if f"optim.{n}" not in self.given}:
            changes |= own
            told = ", ".join(f"optim.{name} {rate:g}" for name, rate in own.items())
            notes += (f"in proportion to {self.whose} optim.lr: {told}",)
        sections["optim"] = dataclasses.replace(flags.optim, **changes)
        return RunConfig(**sections), notes

    def _with_measured(self, sections: dict[str, Any]) -> tuple[RunConfig, tuple[str, ...]]:
        """With the values that were measured best; a resumed run keeps its own."""
        from spherelm.measured import recommend

        if WARMUP not in self.given:  # the preset's may be longer than the run
            sections["optim"] = dataclasses.replace(sections["optim"], warmup_steps=0)
        run = RunConfig(**sections)
        if self.own is not None and self.own.model.arch == run.model.arch:
            return override(run, recommend.taken_over(self.own, self.given)), ()
        made = recommend.recommend(run, self.given)
        return made.run, made.lines

    def warmup(self, steps: int) -> tuple[int, tuple[str, ...]]:
        """The preset's warmup in a run of so many steps, and a remark if it had to change.

        If the run is no longer than the warmup, the warmup is scaled to keep its share of the run.
        A resumed run keeps its own, which may have been scaled to fewer steps than it has now.
        """
        if self.own is not None:
            return self.own.optim.warmup_steps, ()
        warmup = self.preset.optim.warmup_steps
        if not 0 < steps <= warmup:
            return warmup, ()
        now, whose = presets.warmup_for(self.preset, steps), self.whose
        share = f"the share of {whose} {warmup} of {self.preset.train.steps}"
        return now, (f"warmup: {now} of {steps} steps, {share} (--optim.warmup-steps sets it)",)


def _base(argv: list[str]) -> _Base:
    """The preset with the values of a TOML file; if neither is named, a resumed run's own.

    With --init-from, the model's shape replaces the preset's.
    """
    preset, toml, own = value_of("--preset", argv), value_of("--config", argv), _resumed(argv)
    last, source = _start(argv, goes_on=own is not None)
    if preset is None and toml is None and own is not None:
        return _Base(own, given(argv) | {WARMUP, VOCABULARY}, own, own)
    fields = given(argv)
    if last is None:
        named = (
            presets.get(preset) if preset else presets.under(toml, value_of("--model.arch", argv))
        )
    else:
        from spherelm.training.origin import config_after

        named, fields = config_after(last, preset), fields | {VOCABULARY}
    config = named
    if toml is not None:
        # The preset's warmup is set later: the file's run may be shorter than it.
        config = read_toml(toml, override(named, {WARMUP: 0}))
        fields |= {name for name, _ in flatten(toml_values(toml))}
    whose = "the preset's" if last is None or preset else "the last run's"
    chooses = preset is None and last is None and "optim.lr" not in fields
    return _Base(config, fields, named, own, source, whose, chooses)


def _start(argv: list[str], goes_on: bool) -> tuple[RunConfig | None, Saved | None]:
    """The configuration that the --init-from model was last trained with, and the model itself;
    see `origin`."""
    path = value_of("--init-from", argv)
    if path is None:
        return None, None

    from spherelm.runs.run_dir import RunDir
    from spherelm.training.origin import find_start

    return find_start(path, RunDir(Path(value_of("--out", argv) or "")), goes_on)


def _resumed(argv: list[str]) -> RunConfig | None:
    """The configuration of the run that is resumed, if any."""
    from spherelm.runs.run_dir import RunDir

    out = value_of("--out", argv)
    if out is None or value_of("--resume", argv) not in ("auto", "strict") or "--force" in argv:
        return None
    run_dir = RunDir(Path(out))
    return run_dir.read_config() if run_dir.holds_a_run() else None
