"""Seconds of a training step, of several models by turns: alone on the device, unlike in training
where runs may share it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from spherelm.bench.flags import StepMode as Mode
from spherelm.bench.step import training_step
from spherelm.bench.timing import Timing, milliseconds
from spherelm.config import RunConfig
from spherelm.ops.choose import Choice

TURNS, REPEATS = 4, 5
TOKENS_ON_CUDA = 32_768
"""A step of one device, as `spherelm bench step` measures it."""


def tokens_of(run: RunConfig, device: torch.device) -> int:
    """Tokens of the step that is timed."""
    wanted = TOKENS_ON_CUDA if device.type == "cuda" else run.tokens_per_step
    return max(1, wanted // run.model.context) * run.model.context


def step_times(runs: Mapping[str, RunConfig], device: torch.device) -> dict[str, Timing]:
    """Milliseconds of a step of each run.

    They take turns because a device gets warm, and then slower, while it is measured.
    """
    on_cuda = device.type == "cuda"
    mode: Mode = "kernels" if on_cuda else "reference"
    torch.compiler.reset()
    steps = {
        name: training_step(
            run, mode, tokens_of(run, device) // run.model.context, device, Choice(), on_cuda
        )
        for name, run in runs.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(TURNS):
        for name, step in steps.items():
            times[name] += milliseconds(step, device, REPEATS, warmup=1 if turn else 3)
    return {name: Timing.of(found) for name, found in times.items()}
