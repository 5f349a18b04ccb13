"""Runs of several configurations in one group of processes: `torchrun worker.py specs.json`.

Each spec is {"out", "data", "config": dotted fields}. After every step, on every rank, the rows
that the rank holds must have unit norm, and the optimizer's step must not communicate.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor.debug import CommDebugMode

from spherelm.config_io import override
from spherelm.data.dataset import open_dataset
from spherelm.model.sphere import largest_norm_deviation
from spherelm.optim.adamw import AdamW
from spherelm.train import loop
from tests.train.conftest import tiny


class Watched(AdamW):
    """AdamW that checks each of its steps."""

    model: torch.nn.Module

    def __init__(self, model: torch.nn.Module, *arguments: Any, **fields: Any) -> None:
        super().__init__(model, *arguments, **fields)
        self.model = model

    def step(self, closure: Any = None) -> Any:
        with CommDebugMode() as communication:
            super().step(closure)
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        if getattr(self.model, "spherical", False):
            assert largest_norm_deviation(self.model) < 1e-6


def main() -> None:
    torch.set_num_threads(1)
    loop.AdamW = Watched  # type: ignore[misc]
    for spec in json.loads(Path(sys.argv[1]).read_text()):
        run = override(tiny(spec["arch"]), spec["config"])
        loop.train(
            run, open_dataset(spec["data"]), Path(spec["out"]), resume=spec.get("resume", "never")
        )


if __name__ == "__main__":
    main()
