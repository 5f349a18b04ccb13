"""`spherelm train`: one run, from a preset, a TOML file and flags, in that order."""

from __future__ import annotations

import dataclasses
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spherelm import cpu_isa
from spherelm.cli.parse import long_forms, parse, value_of
from spherelm.config import DataConfig, OptimConfig, ParallelConfig, RunConfig, TrainConfig
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
    resume: Literal["never", "auto"] = "never"
    """auto: go on from the newest checkpoint in --out, or begin if there is none."""
    force: bool = False
    """Replace a run that --out already holds."""
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
    argv = long_forms(argv, SHORT_FORMS)
    base = _base_config(argv)
    flags = parse(
        TrainFlags,
        argv,
        "train",
        default=TrainFlags(out=_missing(), **_sections(base)),
    )
    run = RunConfig(**_sections(flags))
    cpu_isa.before_products(run.train.precision, run.train.device)

    from spherelm.data.dataset import open_dataset

    dataset = open_dataset(run.data.path)
    if run.model.vocab_size == base.model.vocab_size:  # not asked for: the data decides
        run = dataclasses.replace(
            run, model=dataclasses.replace(run.model, vocab_size=dataset.vocab_size)
        )
    if flags.dry_run:
        from spherelm.train.plan import print_plan

        print_plan(run, dataset, as_json=flags.json)
        return 0
    result = _train(run, dataset, flags)
    if flags.json:
        print(json.dumps(_as_json(result, Path(flags.out))))
    return 130 if result.stopped_by == signal.SIGINT else 0


def _sections(config: RunConfig | TrainFlags) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(RunConfig)}


def _train(run: RunConfig, dataset: TokenDataset, flags: TrainFlags) -> TrainResult:
    from spherelm.train.loop import train
    from spherelm.train.reporter import for_terminal
    from spherelm.train.resume import check_same_run
    from spherelm.train.run_dir import RunDir

    out = Path(flags.out)
    run_dir = RunDir(out)
    if flags.resume == "auto" and run_dir.holds_a_run() and not flags.force:
        check_same_run(run_dir.read_config(), run)
    resume: Literal["never", "auto"] = "never" if flags.force else flags.resume
    reporter = for_terminal(run.train.log_every)
    result = train(run, dataset, out, resume=resume, force=flags.force, reporter=reporter)
    if result.finished:
        reporter.note(f"finished: validation loss {result.val_loss:.4f}, saved {result.checkpoint}")
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


def _base_config(argv: list[str]) -> RunConfig:
    """The preset and TOML file that the flags build on; a resumed run's own when none is named."""
    from spherelm import presets
    from spherelm.config_io import read_toml

    preset, config = value_of("--preset", argv), value_of("--config", argv)
    out, resume = value_of("--out", argv), value_of("--resume", argv)
    own = Path(out) / "config.toml" if out is not None else None
    if preset is None and config is None and resume == "auto" and own is not None and own.exists():
        return read_toml(own, RunConfig())
    run = presets.get(preset or "nano")
    return run if config is None else read_toml(config, run)


def _missing() -> str:
    import tyro

    return tyro.MISSING
