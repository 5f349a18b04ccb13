"""`spherelm train`: one run, from a preset, a TOML file and flags, in that order."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spherelm import cpu_isa
from spherelm.cli.parse import long_forms, parse, value_of
from spherelm.config import DataConfig, OptimConfig, ParallelConfig, RunConfig, TrainConfig
from spherelm.distributed import launcher
from spherelm.model.config import ModelConfig

if TYPE_CHECKING:
    from spherelm.data.dataset import TokenDataset
    from spherelm.train.loop import TrainResult

SHORT_FORMS = {
    "--data": "--data.path",
    "--steps": "--train.steps",
    "--seed": "--train.seed",
    "--device": "--train.device",
    "--checkpoint-every": "--train.checkpoint-every",
    "--lr": "--optim.lr",
}


@dataclass(frozen=True)
class TrainFlags:
    """Train a GPT or an nGPT.

    Values come from the preset, then the TOML file of --config, then flags; every field of the
    configuration is a flag. Short forms: --data, --steps, --seed, --device, --checkpoint-every and
    --lr for the fields of that name.
    """

    out: str
    """The run directory to make, or to continue with --resume auto."""
    preset: str = "nano"
    """The configuration to start from, such as ngpt-0.5b-1k; a name without gpt- means nGPT."""
    config: str | None = None
    """A TOML file whose fields replace the preset's."""
    resume: Literal["never", "auto", "strict"] = "never"
    """auto: go on from the newest checkpoint in --out, or begin if there is none; where it is
    damaged, from the one before. strict: refuse a damaged one instead."""
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
    if not launcher.is_first():  # before torch is imported: what it warns of, the first one says
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    argv = long_forms(argv, SHORT_FORMS)
    base = _base_config(argv)
    flags = parse(
        TrainFlags,
        argv,
        "train",
        default=TrainFlags(out=_missing(), **_sections(base.config)),
    )
    optim, note = _with_warmup(flags, base, argv)
    run = RunConfig(**{**_sections(flags), "optim": optim})
    cpu_isa.before_products(run.train.precision, run.train.device)

    from spherelm.data.dataset import open_dataset

    dataset = open_dataset(run.data.path)
    asked = run.model.vocab_size != base.config.model.vocab_size
    if not asked and base.source != "run":  # the data decides
        run = dataclasses.replace(
            run, model=dataclasses.replace(run.model, vocab_size=dataset.vocab_size)
        )
    if flags.dry_run:
        from spherelm.train.report.plan import print_plan

        if launcher.is_first():
            print_plan(run, dataset, as_json=flags.json)
        return 0
    result = _train(run, dataset, flags, note)
    if flags.json and launcher.is_first():
        print(json.dumps(_as_json(result, Path(flags.out))))
    return 130 if result.stopped_by == signal.SIGINT else 0


def _sections(config: RunConfig | TrainFlags) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(RunConfig)}


def _train(
    run: RunConfig, dataset: TokenDataset, flags: TrainFlags, note: str | None
) -> TrainResult:
    if not launcher.is_first():
        warnings.simplefilter("ignore")  # the first one has them, too, and speaks for all

    from spherelm.folders import place
    from spherelm.train.loop import train
    from spherelm.train.report.reporter import Reporter, for_terminal

    out = Path(flags.out)
    if flags.force:
        place.check_apart(out, [flags.config])
    reporter = for_terminal(run.train.log_every) if launcher.is_first() else Reporter()
    if note is not None:
        reporter.note(note)
    result = train(run, dataset, out, resume=flags.resume, force=flags.force, reporter=reporter)
    if result.finished:
        loss = "" if result.val_loss is None else f"validation loss {result.val_loss:.4f}, "
        reporter.note(f"finished: {loss}saved {result.checkpoint}")
    else:
        reporter.note(
            f"stopped at step {result.step}, saved {result.checkpoint}; go on with --resume auto"
        )
    return result


def _as_json(result: TrainResult, out: Path) -> dict[str, object]:
    return {
        "run": str(out),
        "step": result.step,
        "finished": result.finished,
        "val_loss": result.val_loss,
        "checkpoint": str(result.checkpoint) if result.checkpoint else None,
    }


@dataclass(frozen=True)
class Base:
    """The configuration that the flags build on."""

    config: RunConfig
    source: Literal["preset", "toml", "run"]
    """Where its warmup is from: a preset's can be scaled, what the user or a run says cannot."""
    preset: RunConfig


def _base_config(argv: list[str]) -> Base:
    """The preset and TOML file that the flags build on; a resumed run's own when none is named."""
    from spherelm import presets
    from spherelm.config_io import read_toml, toml_values

    preset, config = value_of("--preset", argv), value_of("--config", argv)
    own = _resumed(argv)
    if preset is None and config is None and own is not None:
        return Base(own, "run", own)
    run = presets.get(preset or "nano")
    if config is None:
        return Base(run, "preset", run)
    values = toml_values(config)
    optim, train = values.get("optim"), values.get("train")
    sets_warmup = isinstance(optim, dict) and "warmup_steps" in optim
    if not sets_warmup and isinstance(train, dict) and isinstance(train.get("steps"), int):
        start = dataclasses.replace(run, optim=_scaled(run, run.optim, train["steps"]))
    else:
        start = run
    return Base(read_toml(config, start), "toml" if sets_warmup else "preset", run)


def _resumed(argv: list[str]) -> RunConfig | None:
    """The configuration of the run that is gone on with."""
    from spherelm.runs.run_dir import RunDir

    out = value_of("--out", argv)
    if out is None or value_of("--resume", argv) not in ("auto", "strict") or "--force" in argv:
        return None
    run_dir = RunDir(Path(out))
    return run_dir.read_config() if run_dir.holds_a_run() else None


def _with_warmup(flags: TrainFlags, base: Base, argv: list[str]) -> tuple[OptimConfig, str | None]:
    """The optimizer's settings, with a preset's warmup scaled to a run that is shorter than it."""
    optim, steps = flags.optim, flags.train.steps
    if base.source != "preset" or value_of("--optim.warmup-steps", argv) is not None:
        return optim, None
    own = _resumed(argv)
    if own is not None:  # whose warmup may have been scaled to fewer steps than it has now
        return dataclasses.replace(optim, warmup_steps=own.optim.warmup_steps), None
    scaled = _scaled(base.preset, optim, steps)
    if scaled.warmup_steps == base.preset.optim.warmup_steps:
        return optim, None
    return scaled, (
        f"warmup: {scaled.warmup_steps} of {steps} steps, the share of the preset's "
        f"{base.preset.optim.warmup_steps} of {base.preset.train.steps} (--optim.warmup-steps "
        "sets it)"
    )


def _scaled(preset: RunConfig, optim: OptimConfig, steps: int) -> OptimConfig:
    from spherelm import presets

    if not 0 < steps <= preset.optim.warmup_steps:
        return dataclasses.replace(optim, warmup_steps=preset.optim.warmup_steps)
    return dataclasses.replace(optim, warmup_steps=presets.warmup_for(preset, steps))


def _missing() -> str:
    import tyro

    return tyro.MISSING
