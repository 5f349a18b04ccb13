"""Where the time of a step goes: the profiler's kernels, gathered into a few named parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

# The first pattern that is found in a kernel's name decides; the names of our own come first.
_PARTS = {
    "residual update": r"residual_",
    "RMSNorm": r"rms_norm",
    "q and k": r"qk_|rotate",
    "SwiGLU": r"swiglu|silu",
    "loss": r"cross_entropy|scale_rows|softmax|nll_loss",
    "optimizer": r"adamw|multi_tensor|foreach|lpnorm|fused_adam",
    "attention": r"fmha|flash|sdpa|attention|cudnn::fusion",
    "products": r"gemm|nvjet|cutlass|::mm|::addmm|::bmm|_mm_|splitK",
    "embedding": r"embedding|index",
    "copies": r"memcpy|memset|copy|fill|::cat|CatArray",
}
_REST = "other"


def shares(work: Callable[[], object], device: torch.device, repeats: int = 3) -> dict[str, float]:
    """Milliseconds of each part in one run of `work`; a part that took no time is left out.

    On CUDA `idle` is the time between the first and the last kernel in which none ran.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities = [ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler:
        for _ in range(repeats):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    total: dict[str, float] = {}
    for event in profiler.key_averages():
        total_us = _own_time(event, device)
        if total_us:
            part = part_of(event.key)
            total[part] = total.get(part, 0.0) + total_us / 1e3 / repeats
    if device.type == "cuda":
        ranges = [e.time_range for e in profiler.events() if "CUDA" in str(e.device_type)]
        span = max(r.end for r in ranges) - min(r.start for r in ranges)
        total["idle"] = max(0.0, span / 1e3 / repeats - sum(total.values()))
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _own_time(event: Any, device: torch.device) -> float:
    own = event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total
    return float(own)


def part_of(kernel: str) -> str:
    """The part that a kernel belongs to, by its name."""
    for part, pattern in _PARTS.items():
        if re.search(pattern, kernel, re.IGNORECASE):
            return part
    return _REST
