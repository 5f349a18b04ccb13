"""Short names of models for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spherelm.model.config import ARCH_NAMES, Arch

LONGEST = 12


def short_labels(archs: Sequence[Arch], runs: Sequence[str]) -> list[str]:
    """GPT and nGPT or, if there are several of one kind, the names of their folders."""
    labels = []
    for arch, run in zip(archs, runs, strict=True):
        name = Path(run).name or run
        if name.startswith("step_"):  # a checkpoint: its run is two folders up
            name = Path(run).absolute().parents[1].name
        shown = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        labels.append(ARCH_NAMES[arch] if archs.count(arch) == 1 else shown)
    return [
        label if labels.count(label) == 1 else f"{label[: LONGEST - 3]} {i}"
        for i, label in enumerate(labels, start=1)
    ]
