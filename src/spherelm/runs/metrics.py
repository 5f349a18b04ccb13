"""Reads metrics.jsonl and speed.jsonl: one sealed line per step.

A line of metrics.jsonl has step, tokens, loss, lr and grad_norm. If the model was evaluated, it
also has val_loss and val_bits_per_byte, and for nGPT the mean of every alpha and scale of each
layer and the largest deviation of any row's norm from 1. Last comes its seal (see `records`).
Nothing depends on the clock: a run that was killed and resumed writes the same bytes as one that
was not. A line that was damaged and cannot be written again only says "lost".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spherelm import records
from spherelm.errors import or_say

LOST = "lost"
_SEALED = re.compile(rb'\{"step": (\d+),.*, "seal": "[0-9a-f]{8}"\}\n')


class Line(NamedTuple):
    """A line of metrics.jsonl or speed.jsonl."""

    number: int
    """From 1, as editors count."""
    step: int | None
    """None if the line is damaged."""
    text: bytes


def read_metrics(path: Path, steps: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, without lost ones; a damaged one is an error.

    A last line that was cut short is left out. With `steps`, the first and the last, none of them
    may be missing.
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
    """The lines of a file, without a last one cut short; if any line is sealed, all must be."""
    with or_say(f"cannot read {path}"):
        content = path.read_bytes() if path.exists() else b""
    # After the last newline there can only be a line during which the process died.
    texts = [text + b"\n" for text in content.split(b"\n")[:-1]]
    sealed = any(_SEALED.fullmatch(text) for text in texts)
    return [Line(i, _step_of(text, sealed), text) for i, text in enumerate(texts, start=1)]


def what_is_wrong(lines: Sequence[Line], first: int, last: int) -> str | None:
    """Why some step from `first` to `last` has no sound line, in a few words; None if all do."""
    there = {line.step for line in lines}
    missing = next((step for step in range(first, last + 1) if step not in there), None)
    if missing is None:
        return None
    for line in lines:
        if line.step is None:
            return f"line {line.number} is damaged"
    return f"the line of step {missing} is missing"


def _out_of_place(lines: Sequence[Line]) -> str | None:
    before = -1
    for line in lines:
        if line.step is None:
            return f"line {line.number} is damaged"
        if line.step <= before:
            return f"line {line.number} is out of place"
        before = line.step
    return None


def kept_lines(lines: Sequence[Line], first: int, last: int) -> Iterator[bytes]:
    """The text of each step's line; one that is damaged or missing becomes a "lost" one."""
    sound = {line.step: line.text for line in lines if line.step is not None}
    for step in range(first, last + 1):
        text = sound.get(step) or records.line({"step": step, LOST: True}).encode()
        # Lines from before there were seals get theirs when the run is resumed.
        yield text if records.seal_holds(text) else records.seal(text.decode()).encode()


def _step_of(text: bytes, sealed: bool) -> int | None:
    if sealed:
        match = _SEALED.fullmatch(text)
        return int(match[1]) if match is not None and records.seal_holds(text) else None
    try:
        step = records.field(records.parse(text, ""), "step", int, "")
    except records.Damaged:
        return None
    return int(step)
