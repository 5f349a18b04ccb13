"""Runs held against each other: one that was never stopped, and one that was and went on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file


def tensors(out: Path, step: int = 12) -> dict[str, torch.Tensor]:
    """What the checkpoint of a step holds."""
    (shard,) = (out / "checkpoints" / f"step_{step}").glob("*.safetensors")
    return load_file(shard)


def assert_same_run(first: Path, second: Path) -> None:
    """The same metrics and the same end, to the bit."""
    assert (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()
    a, b = tensors(first), tensors(second)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def stopped(whole: Path, lost: Iterable[int] = (8, 12)) -> Path:
    """A copy of a run, beside it, without the checkpoints of some steps: to be resumed."""
    copy = whole.with_name("resumed")
    shutil.copytree(whole, copy)
    for step in lost:
        shutil.rmtree(copy / "checkpoints" / f"step_{step}")
    return copy
