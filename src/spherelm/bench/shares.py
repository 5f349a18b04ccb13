"""Where the time of a step goes: the profiler's kernels, grouped into a few named parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter

import torch
from torch.profiler import ProfilerActivity, profile

# The first pattern found in a kernel's name decides; those of our own kernels come first.
_PARTS = {
    "residual update": r"residual_",
    "RMSNorm": r"rms_norm",
    "q and k": r"qk_|qkv_|rotate",
    "SwiGLU": r"swiglu|silu",
    "loss": r"cross_entropy|scale_rows|softmax|nll_loss",
    "optimizer": r"adamw|multi_tensor|foreach|lpnorm|fused_adam",
    "attention": r"fmha|flash|sdpa|attention|cudnn::fusion",
    "rounding": r"cast_kernel|cast_matrix|turn_kernel",
    "products": r"gemm|nvjet|cutlass|::mm|::addmm|::bmm|_mm_|splitK",
    "embedding": r"embedding|index",
    "copies": r"memcpy|memset|copy|fill|::cat|CatArray",
}


def shares(work: Callable[[], object], device: torch.device, repeats: int = 3) -> dict[str, float]:
    """Milliseconds of each part in one run of `work`; parts that took no time are left out.

    On CUDA `idle` is the time between the first and the last kernel during which none ran.
    """
    on_cuda = device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU
    own_time = attrgetter("self_device_time_total" if on_cuda else "self_cpu_time_total")
    with profile(activities=[activity]) as profiler:
        for _ in range(repeats):
            work()
        if on_cuda:
            torch.cuda.synchronize(device)
    total: dict[str, float] = {}
    for event in profiler.key_averages():
        if total_us := own_time(event):
            part = part_of(event.key)
            total[part] = total.get(part, 0.0) + total_us / 1e3 / repeats
    if on_cuda:
        ranges = [e.time_range for e in profiler.events() if "CUDA" in str(e.device_type)]
        span = max(r.end for r in ranges) - min(r.start for r in ranges)
        total["idle"] = max(0.0, span / 1e3 / repeats - sum(total.values()))
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def part_of(kernel: str) -> str:
    """The part that a kernel belongs to, judged by its name."""
    for part, pattern in _PARTS.items():
        if re.search(pattern, kernel, re.IGNORECASE):
            return part
    return "other"
