"""What is peculiar to `compare`."""

from __future__ import annotations

from tests.faults.bad_inputs.row import row

ROWS = (
    row("compare", says="--out must be given"),
    row("compare --out new --preset gpt-nano", says="--preset must be a size for both models"),
    row("compare --out new --preset ngpt", says="--preset must be a size for both models"),
    row("compare --out new --preset", "", says="--preset is empty"),
    row("compare --out new --preset debug --preset nano", says="--preset is given 2 times"),
    row("compare --out new --lr 1", says="--lr; did you mean --gpt-lr or --ngpt-lr?"),
    row("compare nano --out new", says="did you mean --preset nano?"),
    row("compare --out new --preset nanno", says="unknown preset 'nanno'; did you mean 'nano'?"),
)
