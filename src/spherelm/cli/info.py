"""`spherelm info`: what a configuration costs, computed without allocating it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spherelm.cli.parse import parse


@dataclass(frozen=True)
class InfoFlags:
    """Parameters, FLOPs per token and training memory of a preset."""

    preset: str
    """A preset such as ngpt-0.5b-4k; `gpt-` or `ngpt-` may be left out and means nGPT."""
    config: str | None = None
    """A TOML file whose fields replace the preset's."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(InfoFlags, argv, "info")

    from spherelm import presets
    from spherelm.config_io import read_toml
    from spherelm.model.flops import count_parameters, flops_per_token
    from spherelm.train.memory import training_memory

    run = presets.get(flags.preset)
    if flags.config is not None:
        run = read_toml(flags.config, run)
    count = count_parameters(run.model)
    memory = training_memory(run)
    report = {
        "preset": flags.preset,
        "arch": run.model.arch,
        "parameters": count.total,
        "parameters_by_kind": asdict(count),
        "flops_per_token": flops_per_token(run.model),
        "context": run.model.context,
        "tokens_per_step": run.tokens_per_step,
        "training_memory_bytes": asdict(memory) | {"total": memory.total},
    }
    if flags.json:
        print(json.dumps(report))
    else:
        _print_table(report)
    return 0


def _print_table(report: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report['preset']} ({report['arch']})", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("parameters", f"{report['parameters'] / 1e6:,.1f} M")  # type: ignore[operator]
    for kind, n in report["parameters_by_kind"].items():  # type: ignore[attr-defined]
        table.add_row(f"  {kind}", f"{n / 1e6:,.2f} M")
    table.add_row("FLOPs per token", f"{report['flops_per_token'] / 1e9:,.3f} G")  # type: ignore[operator]
    table.add_row("context", f"{report['context']:,}")
    table.add_row("tokens per step", f"{report['tokens_per_step']:,}")
    for part, n in report["training_memory_bytes"].items():  # type: ignore[attr-defined]
        label = "training memory" if part == "total" else f"  {part}"
        table.add_row(label, f"{n / 2**30:,.2f} GiB")
    Console().print(table)
