"""What is peculiar to `info` and `presets`."""

from __future__ import annotations

from tests.faults.bad_inputs.row import row

ROWS = (
    row("presets --device zzz --time", says="--device"),
    row("presets nano", says="one word too many"),
    row("presets --tiem", says="did you mean --time?"),
    row("info", says="--preset or --config must be given"),
    row("info run", says="did you mean --config run/config.toml?"),
    row("info ngpt-nano", says="did you mean --preset ngpt-nano?"),
    row("info --preset", "", says="unknown preset ''"),
    row("info --preset 7b", says="unknown preset '7b'; did you mean 'ngpt-7b-4k'?"),
    row("info --preset 1b", says="did you mean 'ngpt-1b-1k' or 'ngpt-1b-4k' or 'ngpt-1b-8k'?"),
    row("info --preset nanno", says="did you mean"),
    row("info --world-size 2 x", says="--world-size"),
    row("info --preset debug --world-size 0 2", says="--world-size must be"),
    row("info --preset debug --world-size 8 3", says="--world-size 3 does not go with train.batch"),
    row("info --config configs/tensor.toml --world-size 9", says="processes, which is 9"),
)
