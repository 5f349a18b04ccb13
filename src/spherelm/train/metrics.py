"""metrics.jsonl and speed.jsonl: a sealed line a step, cut back to the checkpoint on resume.

A line of metrics.jsonl has step, tokens, loss, lr and grad_norm, and where the model was evaluated
val_loss and val_bits_per_byte, for nGPT also the mean of every alpha and scale of each layer and
the largest deviation of any row's norm from 1; last comes its seal (see `records`). It holds
nothing that depends on the clock: a run that was killed and resumed writes the same bytes as one
that was not. A line that was damaged and cannot be written again says "lost" and nothing more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from spherelm import durable, records
from spherelm.errors import UserError
from spherelm.model.block import NGPTBlock
from spherelm.model.sphere import largest_norm_deviation
from spherelm.model.transformer import Transformer

LOST = "lost"
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
        """Open `path` to go on after step `last`: lines from `first` to there stay, if sound."""
        self.path = path
        lines = read_lines(path)
        self.lost = what_is_wrong(lines, first, last)
        """What was wrong with the lines that should have stayed, if anything."""
        durable.write_bytes(path, b"".join(_kept(lines, first, last)))
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


def read_metrics(path: Path, steps: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, less those that are lost; a damaged one is refused.

    A last line cut short is left out. With `steps`, the first and the last, all of them must be
    there.
    """
    lines = read_lines(path)
    wrong = _out_of_place(lines)
    if wrong is None and steps is not None:
        wrong = what_is_wrong(lines, *steps)
    if wrong is not None:
        raise records.damaged(path, f"{wrong}; --resume auto of the run repairs what it can")
    found = (records.parse(line.text, path) for line in lines)
    return [line for line in found if not line.get(LOST)]


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
    """Why there is no sound line for each of the steps `first` to `last`, in a few words."""
    there = {line.step for line in lines}
    missing = next((step for step in range(first, last + 1) if step not in there), None)
    if missing is None:
        return None
    damaged = next((line.number for line in lines if line.step is None), None)
    return f"the line of step {missing} is missing" if damaged is None else _damaged(damaged)


def _out_of_place(lines: Sequence[Line]) -> str | None:
    before = -1
    for line in lines:
        if line.step is None:
            return _damaged(line.number)
        if line.step <= before:
            return f"line {line.number} is out of place"
        before = line.step
    return None


def _damaged(number: int) -> str:
    return f"line {number} is damaged"


def _kept(lines: Sequence[Line], first: int, last: int) -> Iterator[bytes]:
    """A line for each step; for one that is damaged or missing, one that says so."""
    sound = {line.step: line.text for line in lines if line.step is not None}
    for step in range(first, last + 1):
        lost = records.line({"step": step, LOST: True}).encode()
        yield _sealed(sound[step]) if step in sound else lost


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
