"""metrics.jsonl and speed.jsonl: a line at a time, cut back to the checkpoint on resume.

A line of metrics.jsonl has step, tokens, loss, lr and grad_norm, and where the model was evaluated
val_loss and val_bits_per_byte, for nGPT also the mean of every alpha and scale of each layer and
the largest deviation of any row's norm from 1. It holds nothing that depends on the clock: a run
that was killed and resumed writes the same bytes as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from spherelm import durable
from spherelm.errors import UserError
from spherelm.model.block import NGPTBlock
from spherelm.model.sphere import largest_norm_deviation
from spherelm.model.transformer import Transformer


class JsonLines:
    """A file of JSON objects, each with a step; only appended to while a run goes on."""

    def __init__(self, path: Path, keep_until: int) -> None:
        """Open `path`, dropping lines of steps after `keep_until` and a last line cut short."""
        self.path = path
        kept = [line for step, line in _lines(path) if step <= keep_until]
        durable.write_text(path, "".join(kept))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run

    def write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(dict(record)) + "\n")
            self._file.flush()
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line cut short is left out."""
    return [json.loads(line) for _, line in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if not path.exists():
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return  # the process died while it wrote this line
            yield int(json.loads(line)["step"]), line


@torch.no_grad()
def sphere_metrics(
    model: Transformer, gather: Callable[[float], list[float]] = lambda mine: [mine]
) -> dict[str, Any]:
    """Mean of every alpha and scale per layer, and how far any row is from unit norm (nGPT)."""
    if model.s_z is None:
        return {}
    means: dict[str, list[float]] = {}
    for block in model.blocks:
        assert isinstance(block, NGPTBlock)
        alpha_A, alpha_M = block.eigen_learning_rates()
        factors = {"alpha_attn": alpha_A, "alpha_mlp": alpha_M}
        for owner, name in ((block.attention, "s_qk"), (block.mlp, "s_u"), (block.mlp, "s_nu")):
            factors[name] = getattr(owner, name)()
        for name, values in factors.items():
            means.setdefault(name, []).append(round(float(values.mean()), 6))
    return {
        **means,
        "s_z": round(float(model.s_z().mean()), 6),
        "largest_norm_deviation": max(gather(largest_norm_deviation(model))),
    }
