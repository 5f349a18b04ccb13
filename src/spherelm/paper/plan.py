"""What items will cost, before anything is trained: their runs, which are done, device hours."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.paper.item import Item
from spherelm.paper.points import Point
from spherelm.paper.runner import Job
from spherelm.paper.size import Size
from spherelm.paper.sizes import preset_of

NODES, GPUS_A_NODE = 8, 8
"""The paper's cluster: 64 GPUs."""


@dataclass(frozen=True)
class Planned:
    """A run of a plan."""

    job: Job
    point: Point
    hours: float
    done: bool
    command: str | None
    """How to train it on a cluster, at the paper's size."""

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.job.id,
            **dataclasses.asdict(self.point),
            "steps": self.job.config.train.steps,
            "tokens": self.job.tokens,
            "flops": self.job.flops,
            "hours": self.hours,
            "done": self.done,
            "command": self.command,
        }


def plan(
    items: Sequence[Item],
    size: Size,
    is_done: Callable[[Job], bool],
    out: str,
    data: str | None,
) -> list[Planned]:
    """Every run of the items, each once."""
    found: dict[str, Planned] = {}
    for item in items:
        for point in item.points(size):
            job = size.job(point)
            if job.id not in found:
                command = torchrun(point, job, out, data) if size.is_papers else None
                found[job.id] = Planned(job, point, size.hours(job), is_done(job), command)
    return list(found.values())


def torchrun(point: Point, job: Job, out: str, data: str | None) -> str:
    """The command that trains a run at the paper's size on the paper's cluster."""
    preset = f"{point.arch}-{preset_of(point)}"
    words = ["torchrun", f"--nnodes={NODES}", f"--nproc-per-node={GPUS_A_NODE}"]
    words += ["--rdzv-backend=c10d", "--rdzv-endpoint=$HOST:29500", "-m", "spherelm", "train"]
    words += ["--preset", preset, *_flags(job.config, presets.get(preset))]
    words += ["--data", data or "DATA", "--out", f"{out}/runs/{job.id}", "--resume", "auto"]
    return shlex.join(words).replace("'--rdzv-endpoint=$HOST:29500'", "--rdzv-endpoint=$HOST:29500")


def _flags(run: RunConfig, preset: RunConfig) -> list[str]:
    """What differs from the preset, as flags of `spherelm train`."""
    before = dict(flatten(to_dict(preset)))
    # Each of the 64 GPUs gets eight sequences of a batch: fewer than the preset puts into a pass.
    share = preset.train.batch_size // (NODES * GPUS_A_NODE)
    micro = min(preset.train.micro_batch_size or share, share)
    changed = {**dict(flatten(to_dict(run))), "train.micro_batch_size": micro}
    words: list[str] = []
    for name, value in changed.items():
        if value == before.get(name):
            continue
        section, _, field = name.rpartition(".")
        dashed = f"{section}.{field}".replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--{section}.no-{field}".replace("_", "-"))
        else:
            words += [f"--{dashed}", f"{value}"]
    return words
