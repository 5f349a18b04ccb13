"""One training step of GPT or nGPT in one mode of execution, built and measured.

Shapes: the step is that of a preset, on fixed random tokens.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from spherelm import presets
from spherelm.bench.shares import shares
from spherelm.bench.timing import Timing, milliseconds
from spherelm.config import RunConfig
from spherelm.model.config import Arch
from spherelm.model.flops import flops_per_token
from spherelm.model.transformer import Transformer
from spherelm.ops.attention import flash_attention_3
from spherelm.ops.choose import Choice
from spherelm.ops.device import products
from spherelm.ops.names import AttentionBackend
from spherelm.optim.adamw import AdamW, attach_retraction, parameter_groups
from spherelm.train.memory import check_fits
from spherelm.train.parallel.shard import compile_blocks

PEAK_FLOPS = 989e12
"""Dense bf16 FLOP/s of an H100 or H200 by its datasheet: what MFU is a share of."""
_TURNS = 4


@dataclass(frozen=True)
class StepResult:
    """What was measured of one model in one mode."""

    size: str
    arch: Arch
    mode: str
    tokens: int
    step_ms: Timing
    first_step_s: float
    """Seconds until the first step was done: compilation."""
    peak_gib: float | None
    """The most memory that tensors took on the device; unknown on a CPU."""
    tflops: float
    parts_ms: dict[str, float]
    """Milliseconds of the device by part, from a profile of further steps."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.step_ms.median * 1e3

    @property
    def mfu(self) -> float:
        return self.tflops * 1e12 / PEAK_FLOPS

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"tokens_per_s": self.tokens_per_s, "mfu": self.mfu}


def measure_steps(
    size: str,
    archs: Sequence[Arch],
    mode: str,
    *,
    device: torch.device,
    tokens: int | None,
    repeats: int,
    attention: AttentionBackend,
) -> list[StepResult]:
    """Build the models of one size, run them by turns, and leave nothing behind.

    They take turns because a device gets warm, and then slower, while it is measured.
    """
    runs = {arch: presets.get(f"{arch}-{size}") for arch in archs}
    torch.compiler.reset()
    ops = Choice("auto" if mode.startswith("kernels") else "reference", attention)
    with flash_attention_3(attention):
        built = {arch: _Built(run, mode, tokens, device, ops) for arch, run in runs.items()}
        times: dict[Arch, list[float]] = {arch: [] for arch in archs}
        for _ in range(_TURNS):
            for arch in archs:
                some = max(1, repeats // _TURNS)
                times[arch] += milliseconds(built[arch].step, device, some, warmup=3)
        parts = {arch: shares(built[arch].step, device) for arch in archs}
    results = []
    for arch, run in runs.items():
        timing = Timing.of(times[arch])
        done = built[arch].tokens
        tflops = flops_per_token(run.model) * done / timing.median / 1e9
        first, peak = built[arch].first_step_s, built[arch].peak_gib
        results.append(StepResult(size, arch, mode, done, timing, first, peak, tflops, parts[arch]))
    del built
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return results


class _Built:
    """A step that has run a few times: compiled, and its memory known."""

    def __init__(
        self, run: RunConfig, mode: str, tokens: int | None, device: torch.device, ops: Choice
    ) -> None:
        if tokens is None:
            tokens = 32768 if device.type == "cuda" else run.tokens_per_step
        batch = max(1, tokens // run.model.context)
        self.tokens = batch * run.model.context
        before = 0
        if device.type == "cuda":
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
        train = replace(run.train, batch_size=batch, micro_batch_size=None)
        check_fits(replace(run, train=train), device)
        self.step = training_step(run, mode, batch, device, ops)
        start = time.perf_counter()
        self.step()
        _wait(device)
        self.first_step_s = time.perf_counter() - start
        self.step()
        _wait(device)
        self.peak_gib: float | None = None
        if device.type == "cuda":
            self.peak_gib = (torch.cuda.max_memory_allocated(device) - before) / 2**30


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def training_step(
    run: RunConfig, mode: str, batch: int, device: torch.device, ops: Choice
) -> Callable[[], object]:
    """A function that trains for one step on fixed random tokens."""
    torch.manual_seed(run.train.seed)
    with torch.device(device):
        model = Transformer(run.model, ops)
        tokens = torch.randint(run.model.vocab_size, (batch, run.model.context + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    loss = model.loss
    if mode in ("kernels", "compiled"):
        compile_blocks(model)
    elif mode == "compiled-model":
        loss = torch.compile(model.loss)
    update = _our_update if mode.startswith("kernels") or device.type != "cuda" else _plain_update
    clip_and_step = update(model, run)

    def step() -> None:
        with products(run.train.precision, device):
            value = loss(inputs, targets)
        value.backward()
        clip_and_step()

    return step


def _our_update(model: Transformer, run: RunConfig) -> Callable[[], None]:
    optimizer = AdamW(model, lr=run.optim.lr, weight_decay=run.optim.weight_decay)
    params = list(model.parameters())

    def clip_and_step() -> None:
        norm = nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
        optimizer.scale_gradients((run.optim.grad_clip / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()
        optimizer.zero_grad()

    return clip_and_step


def _plain_update(model: Transformer, run: RunConfig) -> Callable[[], None]:
    """What one would write without us: torch's fused AdamW, its clipping, and `retract_`."""
    groups = parameter_groups(model, run.optim.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=run.optim.lr, fused=True)
    attach_retraction(optimizer, model)

    def clip_and_step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), run.optim.grad_clip)
        optimizer.step()
        optimizer.zero_grad()

    return clip_and_step
