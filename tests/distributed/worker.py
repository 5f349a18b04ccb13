"""Runs of several configurations in one group of processes: `torchrun worker.py specs.json`.

Each spec is {"out", "data", "config": dotted fields}. After every step, on every rank, the rows
that the rank holds must have unit norm, and the optimizer's step must not communicate. Between
micro-batches no rank may hold gradients of rows that are not its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.debug import CommDebugMode

from spherelm.config_io import override
from spherelm.data.open import open_dataset
from spherelm.model.sphere import largest_norm_deviation
from spherelm.optim import build, muon
from spherelm.optim.adamw import AdamW
from spherelm.training import loop
from tests.training.conftest import tiny


class Watched(AdamW):
    """AdamW that checks each of its steps."""

    model: torch.nn.Module
    checked = 0
    """Steps so far, of all runs: none would say that training has another optimizer."""

    def __init__(self, model: torch.nn.Module, *arguments: Any, **fields: Any) -> None:
        super().__init__(model, *arguments, **fields)
        self.model = model

    def step(self, closure: Any = None) -> Any:
        with CommDebugMode() as communication:
            super().step(closure)
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        if getattr(self.model, "spherical", False):
            assert largest_norm_deviation(self.model) < 1e-6
        Watched.checked += 1


def whole_gradients(model: torch.nn.Module) -> list[str]:
    """The parameters whose gradients a rank keeps for all rows, not only for its own."""
    found = []
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            parameters = (p for group in groups if group for p in group.fsdp_params)
            found += [p._param_fqn for p in parameters if _holds_whole(p)]
    return found


def _holds_whole(parameter: Any) -> bool:
    """FSDP2 keeps them beside its parameter, or where they are sums in another dtype, apart."""
    whole = getattr(parameter, "_unsharded_param", None)
    beside = None if whole is None else whole.grad
    return beside is not None or parameter.unsharded_accumulated_grad is not None


class WatchedTrainer(loop.Trainer):
    """A trainer that checks what its rank holds before each micro-batch."""

    def _at(self, what: str) -> None:
        assert not (held := whole_gradients(self.state.model)), held
        super()._at(what)


def main() -> None:
    torch.set_num_threads(1)
    loop.Trainer = WatchedTrainer  # type: ignore[misc]
    build.AdamW = muon.AdamW = Watched  # type: ignore[misc]
    loop.check_eight_bits = lambda *_: None  # on a CPU they are simulated
    for spec in json.loads(Path(sys.argv[1]).read_text()):
        run = override(tiny(spec["arch"]), spec["config"])
        before = Watched.checked
        result = loop.train(
            run, open_dataset(spec["data"]), Path(spec["out"]), resume=spec.get("resume", "never")
        )
        watched = 0 if run.optim.algorithm == "gated_adamw" else result.step - result.first_step
        assert Watched.checked - before == watched
        assert result.step > result.first_step


if __name__ == "__main__":
    main()
