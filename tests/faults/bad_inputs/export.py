"""What is peculiar to `export` and `import`."""

from __future__ import annotations

from tests.faults.bad_inputs.kinds import NO_MODELS
from tests.faults.bad_inputs.row import row

ROWS = (
    row("import nowhere --out new", says="nowhere does not exist; give an exported folder"),
    row("export", says="--out and RUN must"),
    row("import --out new", says="FOLDER must be given ("),
    row("export run", says="--out must be given"),
    row("export gpt --fold --out new", says="--fold is for nGPT"),
    row("export run --out .", says="--out"),
    row("export run --out ..", says="--out"),
    row("export run --out /", says="--out"),
    row("export", "run without tokenizer", "--out", "new", says="name one with --tokenizer"),
    row("import hf", says="--out must be given"),
    row("import hf --out .", says="--out"),
    row("import hf --out ..", says="--out"),
    row("import run --out new", says="run is already spherelm's own"),
    row("import folded --out new", says="folded export"),
    *(
        row("import", name, "--out", "new", says=says)
        for name, says in NO_MODELS.items()
        if not name.startswith("run")
    ),
)
