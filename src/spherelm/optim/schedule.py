"""The learning rate over a run: optional linear warmup, then a cosine to the final rate."""

from __future__ import annotations

import math

from spherelm.validate import require_int, require_non_negative


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
        return peak * (step + 1) / (warmup_steps + 1)
    progress = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * progress))
