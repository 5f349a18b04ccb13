"""What is peculiar to `report`."""

from __future__ import annotations

from tests.faults.bad_inputs.row import row

ROWS = (
    row("report run", says="--out must be given"),
    row("report --out new", says="report needs at least one run"),
    row("report run run --out new", says="run is named twice"),
    row("report nowhere --out new", says="nowhere does not exist; give run directories"),
    row("report hf --out new", says="hf holds no run (config.toml)"),
    row("report text.txt --out new", says="text.txt is a file; give run directories"),
    row("report run --out run", says="is an input, too"),
    row("report run --out full", says="full holds mine.txt, which"),
    row("report run --out data", says="data was written by `spherelm prepare`"),
    row("report run --out text.txt", says="text.txt"),
    row("report run --out", "", says="out is empty"),
    row("report --out new", "", says="is empty; name a file or folder"),
    row("report run --out new", says="metrics.jsonl"),  # its only line lacks what a step has
    row("report --out new " + " ".join(f"r{n}" for n in range(13)), says="at most 12 runs"),
)
