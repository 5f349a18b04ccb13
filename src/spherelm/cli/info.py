"""`spherelm info`: what a configuration costs, computed without allocating it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.config_io import override, read_toml
from spherelm.console import format_count, format_flops, print_table, show
from spherelm.errors import UserError
from spherelm.flags import parse
from spherelm.validate import check_fields

CLUSTER_PRESETS = ("ngpt-0.5b-4k", "ngpt-1b-4k", "ngpt-7b-4k")


@dataclass(frozen=True)
class InfoFlags:
    """Parameters, FLOPs per token and training memory of a preset or of a run's configuration.

    With --world-size: the estimated memory per GPU on that many GPUs, for the preset or the file,
    or without either for the sizes people train on clusters.

        spherelm info --preset ngpt-0.5b-4k
        spherelm info --config runs/mine/config.toml
        spherelm info --world-size 1 8 64
    """

    preset: str | None = None
    """A preset such as ngpt-0.5b-4k; a name without gpt- or ngpt- means nGPT."""
    config: str | None = None
    """A TOML file whose fields replace those of the preset or, without one, of nano, as in
    training."""
    data: str | None = None
    """Tokens that set the vocabulary, as in training. Unset: the preset's or the TOML file's."""
    world_size: tuple[int, ...] = ()
    """Numbers of GPUs, such as 1 2 4 8 16 32 64."""
    json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        check_fields(self, "--")

    @property
    def called(self) -> str | None:
        """The name of the configuration that was asked for."""
        return self.config if self.preset is None else self.preset


def main(argv: list[str]) -> int:
    flags = parse(InfoFlags, argv, "info", meant=_as_option)
    if flags.world_size:
        return _memory_by_gpus(flags)
    called = flags.called
    if called is None:
        raise UserError(
            "--preset or --config must be given (spherelm info --help lists the options)"
        )
    report = _report(flags.preset, _run(flags.preset, flags))
    return show(report, flags.json, lambda: _print(called, report))


def _as_option(word: str) -> str | None:
    """The option that a stray word was probably meant as: a preset, or the config of a run."""
    config = Path(word) / "config.toml"
    return f"--config {config}" if config.is_file() else presets.as_option(word)


def _run(preset: str | None, flags: InfoFlags) -> RunConfig:
    run = presets.under(flags.config) if preset is None else presets.get(preset)
    if flags.config is not None:
        # The preset's warmup does not affect the cost, and may be longer than the file's run.
        run = read_toml(flags.config, override(run, {"optim.warmup_steps": 0}))
    if flags.data is None:
        return run

    from spherelm.data.open import open_dataset

    return override(run, {"model.vocab_size": open_dataset(flags.data, verify=False).vocab_size})


def _report(preset: str | None, run: RunConfig) -> dict[str, Any]:
    from spherelm.model.flops import count_parameters, flops_per_token
    from spherelm.training.memory import training_memory

    count = count_parameters(run.model)
    memory = training_memory(run)
    return {
        "preset": preset,
        "arch": run.model.arch,
        "parameters": count.total,
        "parameters_by_kind": asdict(count),
        "vocab_size": run.model.vocab_size,
        "flops_per_token": flops_per_token(run.model),
        "context": run.model.context,
        "tokens_per_step": run.tokens_per_step,
        "training_memory_bytes": asdict(memory) | {"total": memory.total},
    }


def _print(called: str, report: dict[str, Any]) -> None:
    from spherelm.free_memory import gib

    memory = report["training_memory_bytes"]
    parts = {part.replace("_", " "): n for part, n in memory.items() if part != "total"}
    print_table(
        f"{called} ({report['arch']})",
        [
            ("parameters", format_count(report["parameters"])),
            *((f"  {kind}", format_count(n)) for kind, n in report["parameters_by_kind"].items()),
            ("vocabulary", f"{report['vocab_size']:,}"),
            ("context", f"{report['context']:,} tokens"),
            ("step", f"{report['tokens_per_step']:,} tokens"),
            ("FLOPs per token", format_flops(report["flops_per_token"])),
            ("training memory", gib(memory["total"])),
            *((f"  {part}", gib(n)) for part, n in parts.items()),
        ],
    )


def _memory_by_gpus(flags: InfoFlags) -> int:
    from spherelm.training.memory import training_memory

    if flags.called is None:
        runs = {name: _run(name, flags) for name in CLUSTER_PRESETS}
    else:
        runs = {flags.called: _run(flags.preset, flags)}
    numbers = list(dict.fromkeys(flags.world_size))
    for run in runs.values():
        for n in numbers:
            _check_shares(run, n)
    what = "configuration" if flags.preset is None and flags.config is not None else "preset"
    memory = {
        name: {n: training_memory(run, n).total for n in numbers} for name, run in runs.items()
    }
    return show(
        {"memory_bytes_per_gpu": memory},
        flags.json,
        lambda: print_table(
            f"estimated memory per GPU in GiB (FSDP2, the {what}'s micro-batch)",
            [(name, *(_in_gib(n) for n in row.values())) for name, row in memory.items()],
            [what, *(f"{n} GPU{'s' if n > 1 else ''}" for n in numbers)],
        ),
    )


def _check_shares(run: RunConfig, world_size: int) -> None:
    """Refuse a number of GPUs that does not divide the batch equally, as training would."""
    ranks = run.parallel.replicate * run.parallel.shards(world_size)
    if run.train.batch_size % ranks:
        raise UserError(
            f"--world-size {world_size} does not go with train.batch_size = "
            f"{run.train.batch_size}, which must be a multiple of {ranks}"
        )


def _in_gib(count: int) -> str:
    """Bytes in GiB, with more digits below 1 GiB so that small models do not show as 0.0."""
    return f"{count / 2**30:.{1 if count >= 2**30 else 3}f}"
