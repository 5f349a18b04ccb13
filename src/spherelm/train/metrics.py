"""metrics.jsonl and speed.jsonl: a sealed line a step, cut back to the checkpoint on resume.

A line of metrics.jsonl has step, tokens, loss, lr and grad_norm, and where the model was evaluated
val_loss and val_bits_per_byte, for nGPT also the mean of every alpha and scale of each layer and
the largest deviation of any row's norm from 1; last comes its seal (see `records`). It holds
nothing that depends on the clock: a run that was killed and resumed writes the same bytes as one
that was not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from spherelm import durable, records
from spherelm.errors import UserError
from spherelm.model.block import NGPTBlock
from spherelm.model.sphere import largest_norm_deviation
from spherelm.model.transformer import Transformer

_SEALED = re.compile(rb'\{"step": (\d+),.*, "seal": "[0-9a-f]{8}"\}\n')


class Line(NamedTuple):
    """A line of a file of steps."""

    number: int
    """From 1, as editors count."""
    step: int | None
    """None where the line is damaged."""
    text: bytes


class JsonLines:
    """A file of JSON objects, each with a step; only appended to while a run goes on."""

    def __init__(self, path: Path, first: int, last: int) -> None:
        """Open `path` to go on after step `last`: only sound lines from `first` to there stay."""
        self.path = path
        lines = read_lines(path)
        self.lost = what_is_wrong(lines, first, last)
        """What was wrong with the lines that should have stayed, if anything."""
        kept = _sound(lines, first, last)
        durable.write_bytes(path, b"".join(_sealed(line.text) for line in kept))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run

    def write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(records.line(record))
            self._file.flush()
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None

    def sync(self) -> None:
        """Force what was written to the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line cut short is left out, a damaged one refused."""
    lines = read_lines(path)
    for line in lines:
        if line.step is None:
            raise records.Damaged(
                f"{path} is damaged in line {line.number}; --resume auto of the run mends what "
                "can be, or remove the line"
            )
    return [records.parse(line.text, path) for line in lines]


def read_lines(path: Path) -> list[Line]:
    """The lines of a file of steps, less a last one cut short; where one is sealed, all must be."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    # What follows the last end of a line is a line that the process died in.
    texts = [text + b"\n" for text in content.split(b"\n")[:-1]]
    sealed = any(_SEALED.fullmatch(text) for text in texts)
    return [Line(i, _step_of(text, sealed), text) for i, text in enumerate(texts, start=1)]


def what_is_wrong(lines: Sequence[Line], first: int, last: int) -> str | None:
    """The first fault in the lines of steps `first` to `last`, in a few words."""
    expected = first
    for line in lines:
        if expected > last:
            return None
        if line.step is None:
            return f"line {line.number} is damaged"
        if line.step != expected:
            return f"the line of step {expected} is missing"
        expected += 1
    return None if expected > last else f"the line of step {expected} is missing"


def _sound(lines: Sequence[Line], first: int, last: int) -> list[Line]:
    kept: list[Line] = []
    for line in lines:
        if line.step is not None and first <= line.step <= last:
            kept.append(line)
            first = line.step + 1
    return kept


def _step_of(text: bytes, sealed: bool) -> int | None:
    if sealed:
        match = _SEALED.fullmatch(text)
        return int(match[1]) if match is not None and records.seal_holds(text) else None
    try:
        step = records.field(records.parse(text, ""), "step", int, "")
    except records.Damaged:
        return None
    return int(step)


def _sealed(text: bytes) -> bytes:
    """Lines of a run that began before there were seals get theirs when it goes on."""
    return text if records.seal_holds(text) else records.seal(text.decode()).encode()


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
