"""The learning rate over a run: an optional linear warmup, then a decay to the final rate.

    cosine   half a cosine
    linear   a straight line
    wsd      constant, then a straight line over the last share of the run
             (warmup, stable, decay; arXiv 2404.06395)
    log      1 − log(1 + r/ρ) / log(1 + 1/ρ), r the progress of the decay: fast at first, then
             slower and slower, the more so the smaller ρ (Training nGPT, arXiv 2608.01284)

The peak is at step `warmup_steps`; the final rate would be reached at the step after the last.
"""

from __future__ import annotations

import math

from spherelm.config import OptimConfig
from spherelm.validate import require_int, require_non_negative


def rate(step: int, optim: OptimConfig, steps: int) -> float:
    """The rate of step 0 ≤ `step` < `steps` under `optim.schedule`."""
    warmup = optim.warmup_steps
    if optim.schedule == "cosine":
        return cosine_schedule(
            step, steps=steps, peak=optim.lr, warmup_steps=warmup, final=optim.final_lr
        )
    if step < warmup:
        return _warmup(step, optim.lr, warmup)
    if optim.schedule == "wsd":
        stable = min(steps - 1, round(steps * (1 - optim.decay_share)))
        warmup = max(warmup, stable)  # the decay starts here
    left = 1 - _progress(step, steps, warmup)
    if optim.schedule == "log":
        left = 1 - math.log1p((1 - left) / optim.log_rho) / math.log1p(1 / optim.log_rho)
    return optim.final_lr + (optim.lr - optim.final_lr) * left


def cosine_schedule(
    step: int, *, steps: int, peak: float, warmup_steps: int = 0, final: float = 0.0
) -> float:
    """The rate of step 0 ≤ `step` < `steps`.

    Warmup rises linearly and reaches `peak` at step `warmup_steps`; the cosine starts there and
    would reach `final` at step `steps`, the one after the last.
    """
    require_int("step", step, at_least=0)
    require_int("steps", steps)
    require_int("warmup_steps", warmup_steps, at_least=0)
    require_non_negative("peak", peak)
    require_non_negative("final", final)
    if step < warmup_steps:
        return _warmup(step, peak, warmup_steps)
    progress = _progress(step, steps, warmup_steps)
    return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * progress))


def _warmup(step: int, peak: float, warmup_steps: int) -> float:
    return peak * (step + 1) / (warmup_steps + 1)


def _progress(step: int, steps: int, start: int) -> float:
    """The fraction of the decay from `start` to `steps` that is done: 0 before it, 1 at its end."""
    return min(1.0, max(0, step - start) / max(1, steps - start))
