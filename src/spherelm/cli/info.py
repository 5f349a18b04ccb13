"""`spherelm info`: what a configuration costs, computed without allocating it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from spherelm.cli.parse import parse
from spherelm.console import open_console
from spherelm.errors import UserError

if TYPE_CHECKING:
    from spherelm.config import RunConfig

CLUSTER_PRESETS = ("ngpt-0.5b-4k", "ngpt-1b-4k", "ngpt-7b-4k")


@dataclass(frozen=True)
class InfoFlags:
    """Parameters, FLOPs per token and training memory of a preset.

    With --world-size: the estimated memory on each of so many GPUs, for the preset or, without
    one, for the sizes people train on clusters.
    """

    preset: str | None = None
    """A preset such as ngpt-0.5b-4k; `gpt-` or `ngpt-` may be left out and means nGPT."""
    config: str | None = None
    """A TOML file whose fields replace the preset's."""
    data: str | None = None
    """Tokens whose vocabulary counts, as in training. Unset: the preset's or the TOML file's."""
    world_size: tuple[int, ...] = ()
    """Numbers of GPUs, such as 1 2 4 8 16 32 64."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(InfoFlags, argv, "info")
    if flags.preset is None and not flags.world_size:
        raise UserError("--preset must be given; `spherelm info --help` lists the options")
    if flags.world_size:
        return _memory_table(flags)
    report = _report(flags.preset or "", _run(flags.preset or "", flags))
    if flags.json:
        print(json.dumps(report))
    else:
        _print_report(report)
    return 0


def _run(preset: str, flags: InfoFlags) -> RunConfig:
    from spherelm import presets
    from spherelm.config_io import read_toml

    run = presets.get(preset)
    if flags.config is not None:
        run = read_toml(flags.config, run)
    if flags.data is None:
        return run

    from spherelm.data.dataset import open_dataset

    vocab_size = open_dataset(flags.data, verify=False).vocab_size
    return replace(run, model=replace(run.model, vocab_size=vocab_size))


def _report(preset: str, run: RunConfig) -> dict[str, Any]:
    from spherelm.model.flops import count_parameters, flops_per_token
    from spherelm.train.memory import training_memory

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


def _print_report(report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{report['preset']} ({report['arch']})", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("parameters", f"{report['parameters'] / 1e6:,.1f} M")
    for kind, n in report["parameters_by_kind"].items():
        table.add_row(f"  {kind}", f"{n / 1e6:,.2f} M")
    table.add_row("vocabulary", f"{report['vocab_size']:,}")
    table.add_row("FLOPs per token", f"{report['flops_per_token'] / 1e9:,.3f} G")
    table.add_row("context", f"{report['context']:,}")
    table.add_row("tokens per step", f"{report['tokens_per_step']:,}")
    for part, n in report["training_memory_bytes"].items():
        label = "training memory" if part == "total" else f"  {part.replace('_', ' ')}"
        table.add_row(label, f"{n / 2**30:,.2f} GiB")
    open_console().print(table)


def _memory_table(flags: InfoFlags) -> int:
    from spherelm.train.memory import training_memory
    from spherelm.validate import require_int

    for number in flags.world_size:
        require_int("--world-size", number)
    names = CLUSTER_PRESETS if flags.preset is None else (flags.preset,)
    runs = {name: _run(name, flags) for name in names}
    rows = {
        name: {n: training_memory(run, n).total for n in flags.world_size}
        for name, run in runs.items()
    }
    if flags.json:
        print(json.dumps({"memory_bytes_per_gpu": rows}))
        return 0

    from rich.table import Table

    table = Table(title="estimated memory per GPU in GiB (FSDP2, the preset's micro-batch)")
    table.add_column("preset", style="bold")
    for number in flags.world_size:
        table.add_column(f"{number} GPU{'s' if number > 1 else ''}", justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{bytes_ / 2**30:.1f}" for bytes_ in row.values()))
    open_console().print(table)
    return 0
