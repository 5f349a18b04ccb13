"""Time the training steps of several models, taking turns, alone on the device (while in training
runs may share it)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

import torch

from spherelm.bench.flags import StepMode as Mode
from spherelm.bench.step import training_step
from spherelm.bench.timing import Timing, milliseconds
from spherelm.config import RunConfig
from spherelm.ops.choose import Choice
from spherelm.training.passes import WARM_UPS

TURNS, REPEATS = 4, 5
TOKENS_ON_CUDA = 32_768
"""Tokens of one device's step, as in `spherelm bench step`."""


def tokens_of(run: RunConfig, device: torch.device) -> int:
    """Tokens of the step that is timed."""
    wanted = TOKENS_ON_CUDA if device.type == "cuda" else run.tokens_per_step
    return max(1, wanted // run.model.context) * run.model.context


def step_times(
    runs: Mapping[str, RunConfig],
    device: torch.device,
    whole: bool = False,
    say: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Milliseconds per step of each run, with its own optimizer, attention, precision and
    compilation.

    `whole` times all tokens of the run's step instead of `tokens_of`. The models take turns because
    a device warms up, and so slows down, while it is measured.
    """
    torch.compiler.reset()
    try:
        with torch._dynamo.config.patch(recompile_limit=8 * len(runs)):  # the default, 8, per model
            return _by_turns(runs, device, whole, say)
    finally:
        _free(device)


def _by_turns(
    runs: Mapping[str, RunConfig],
    device: torch.device,
    whole: bool,
    say: Callable[[str], None] | None,
) -> dict[str, Timing]:
    steps = {}
    for name, run in runs.items():
        steps[name] = _step(run, device, run.tokens_per_step if whole else tokens_of(run, device))
        first, *_ = milliseconds(steps[name], device, repeats=2 + WARM_UPS, warmup=0)
        _free(device)  # memory of the passes before they were captured
        if say is not None:
            say(f"{name}: first step after {first / 1e3:.1f} s")
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, step in steps.items():
            times[name] += milliseconds(step, device, REPEATS, warmup=1)
    return {name: Timing.of(found) for name, found in times.items()}


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _step(run: RunConfig, device: torch.device, tokens: int) -> Callable[[], object]:
    train, on_cuda = run.train, device.type == "cuda"
    compiled: Mode = "kernels" if train.compile else "kernels-eager"
    ops = Choice(attention=train.attention, fp8=train.precision == "fp8")
    mode: Mode = compiled if on_cuda else "reference"
    return training_step(run, mode, tokens // run.model.context, device, ops, on_cuda)
