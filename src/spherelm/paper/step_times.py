"""Time the training steps of several models, taking turns, alone on the device (while in training
runs may share it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from spherelm.bench.flags import StepMode as Mode
from spherelm.bench.step import TOKENS_ON_CUDA, training_step
from spherelm.bench.timing import Timing, by_turns, free, milliseconds
from spherelm.config import RunConfig
from spherelm.ops.choose import Choice
from spherelm.training.passes import WARM_UPS

REPEATS = 5
"""In each turn."""


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

    `whole` times all tokens of the run's step instead of `tokens_of`.
    """
    torch.compiler.reset()
    try:
        with torch._dynamo.config.patch(recompile_limit=8 * len(runs)):  # the default, 8, per model
            return _timed(runs, device, whole, say)
    finally:
        free(device)


def _timed(
    runs: Mapping[str, RunConfig],
    device: torch.device,
    whole: bool,
    say: Callable[[str], None] | None,
) -> dict[str, Timing]:
    steps = {}
    for name, run in runs.items():
        steps[name] = _step(run, device, run.tokens_per_step if whole else tokens_of(run, device))
        first, *_ = milliseconds(steps[name], device, repeats=2 + WARM_UPS, warmup=0)
        free(device)  # memory of the passes before they were captured
        if say is not None:
            say(f"{name}: first step after {first / 1e3:.1f} s")
    return by_turns(steps, device, REPEATS, warmup=1)


def _step(run: RunConfig, device: torch.device, tokens: int) -> Callable[[], object]:
    train, on_cuda = run.train, device.type == "cuda"
    compiled: Mode = "kernels" if train.compile else "kernels-eager"
    ops = Choice(attention=train.attention, fp8=train.precision == "fp8")
    mode: Mode = compiled if on_cuda else "reference"
    return training_step(run, mode, tokens // run.model.context, device, ops, on_cuda)
