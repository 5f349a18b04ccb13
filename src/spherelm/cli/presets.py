"""`spherelm presets`: every preset with what it costs, in one table."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.console import format_count, format_seconds, print_table, show
from spherelm.errors import UserError
from spherelm.flags import parse

PATIENCE = 15.0
"""Seconds that measuring one preset may take; slower ones are listed without a time."""


@dataclass(frozen=True)
class PresetsFlags:
    """All presets: parameters, context, tokens of the whole run and, with --time, its duration.

    Parameters are for the preset's vocabulary; a real run uses that of its data.
    """

    time: bool = False
    """Estimate how long each run would take on this machine, by timing it with one layer and with
    two; those too large to time within seconds are left out."""
    device: str = "auto"
    """Where to measure: cpu, cuda, mps, or auto for the fastest there is."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(PresetsFlags, argv, "presets")
    runs = {name: presets.get(name) for name in presets.names()}
    rows = {name: _costs(run) for name, run in runs.items()}
    result: dict[str, Any] = {"presets": rows}
    if flags.time:
        result["device"] = _measure(runs, rows, flags.device)
    return show(result, flags.json, lambda: _print(result))


def _costs(run: RunConfig) -> dict[str, Any]:
    from spherelm.model.flops import count_parameters, flops_per_token

    return {
        "arch": run.model.arch,
        "parameters": count_parameters(run.model).total,
        "context": run.model.context,
        "vocab_size": run.model.vocab_size,
        "steps": run.train.steps,
        "tokens_per_step": run.tokens_per_step,
        "tokens": run.tokens,
        "flops": flops_per_token(run.model) * run.tokens,
    }


def _measure(runs: dict[str, RunConfig], rows: dict[str, dict[str, Any]], device: str) -> str:
    """Add to `rows` the seconds of each run that is quick to measure; returns the device used."""
    from spherelm.ops.device import choose_device
    from spherelm.training.report.plan import SHARE, flops_to_measure, measure_speed, product_speed

    where = choose_device(device, "--device")
    reached = SHARE * product_speed(where)
    for name, run in runs.items():
        row: dict[str, Any] = rows[name] | {"tokens_per_second": None, "seconds": None}
        with contextlib.suppress(UserError):  # it does not fit in memory
            if flops_to_measure(run) < PATIENCE * reached:
                print(f"timing {name}", file=sys.stderr, flush=True)
                speed = measure_speed(run, where)
                row |= {"tokens_per_second": speed, "seconds": row["tokens"] / speed}
        rows[name] = row
    return str(where)


def _print(result: dict[str, Any]) -> None:
    timed = "device" in result
    head = ["preset", "parameters", "context", "tokens"]
    head += [f"time on one {result['device']}"] if timed else []
    lines = []
    for name, row in result["presets"].items():
        line = [name, format_count(row["parameters"]), f"{row['context']:,}"]
        line.append(format_count(row["tokens"]))
        if timed:
            line.append("" if row["seconds"] is None else format_seconds(row["seconds"]))
        lines.append(line)
    left_out = timed and any(row["seconds"] is None for row in result["presets"].values())
    note = f"no time: no room here, or over {PATIENCE:g} s to measure" if left_out else None
    print_table(None, lines, head, caption=note)
