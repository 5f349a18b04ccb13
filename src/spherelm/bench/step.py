"""`spherelm bench step`: the time of a whole training step, GPT beside nGPT.

    spherelm bench step --sizes 0.5b-1k 0.5b-4k 0.5b-8k

Forward, backward, clipping and optimizer, in one process on the same random tokens. Modes:

    kernels         our Triton kernels, blocks compiled, passes as CUDA graphs: what `spherelm
                    train` runs on CUDA
    fp8             the same with the blocks' products in eight bits: train.precision = fp8
    kernels-eager   like kernels, without torch.compile
    compiled        plain PyTorch, torch.compile on the blocks, torch's fused AdamW
    compiled-model  plain PyTorch, torch.compile on the whole model, torch's fused AdamW
    reference       plain PyTorch, not compiled: what runs on a CPU
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from spherelm import presets
from spherelm.bench.flags import StepFlags as Flags
from spherelm.bench.flags import StepMode as Mode
from spherelm.bench.report import Report, Table, environment, measuring
from spherelm.bench.shares import shares
from spherelm.bench.timing import TURNS, Timing, by_turns, free
from spherelm.config import RunConfig
from spherelm.data.loader import Batch
from spherelm.model.config import Arch
from spherelm.model.flops import flops_per_token
from spherelm.model.transformer import Transformer
from spherelm.ops.attention import flash_attention_3
from spherelm.ops.choose import Choice
from spherelm.ops.device import check_fp8, choose_device, in_precision
from spherelm.optim.adamw import attach_retraction, parameter_groups
from spherelm.optim.recipes.logit_gradient import precondition_
from spherelm.training.build import build_optimizer
from spherelm.training.memory import check_fits
from spherelm.training.parallel.gradients import clipping_factor
from spherelm.training.parallel.shard import compile_blocks
from spherelm.training.passes import WARM_UPS, Passes

PEAK_FLOPS = {
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
}
"""Dense bf16 FLOP/s from the datasheets, by a part of the GPU's name; MFU is relative to these."""

TOKENS_ON_CUDA = 32_768
"""Tokens of a step, unless --tokens says otherwise."""
OURS = ("kernels", "fp8", "kernels-eager")
"""Modes that use our kernels."""


@dataclass(frozen=True)
class StepResult:
    """Measurements of one model in one mode."""

    size: str
    arch: Arch
    mode: Mode
    tokens: int
    step_ms: Timing
    first_step_s: float
    """Seconds that the first step took, mostly for compilation."""
    peak_gib: float | None
    """Peak memory of tensors on the device; unknown on a CPU."""
    tflops: float
    mfu: float | None
    """The share of the device's peak; None if that is unknown."""
    parts_ms: dict[str, float]
    """Milliseconds on the device by part, from a profile of further steps."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.step_ms.median * 1e3

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"tokens_per_s": self.tokens_per_s}


def run(flags: Flags) -> Report:
    """Measure every size in every mode."""
    device = choose_device(flags.device, "--device")
    on_cuda = device.type == "cuda"
    sizes = flags.sizes or (("0.5b-1k",) if on_cuda else ("nano",))
    modes = flags.modes or (("kernels", "compiled", "reference") if on_cuda else ("reference",))
    if "fp8" in modes:
        check_fp8(device, "--modes fp8", "another mode")
    runs = {size: {arch: presets.of_size(size, arch) for arch in flags.archs} for size in sizes}
    results: list[StepResult] = []
    for size in sizes:
        for mode in modes:
            measuring(f"{size} {mode}")
            results += measure_steps(size, runs[size], mode, flags, device)
    steps = [result.as_json() for result in results]
    return Report(environment(device), {"steps": steps}, _tables(results))


def peak_flops(device: torch.device) -> float | None:
    """Dense bf16 FLOP/s of a device; None if unknown."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)


def _tables(results: Sequence[StepResult]) -> list[Table]:
    """A table of step times side by side, and one of the times of their parts."""
    by_name = {(r.size, r.mode, r.arch): r for r in results}

    def ratio(r: StepResult, mode: Mode, arch: Arch) -> str:
        other = by_name.get((r.size, mode, arch))
        return "" if other is None else f"{r.step_ms.median / other.step_ms.median:.3f}"

    rows = [
        [
            f"{r.arch}-{r.size} {r.mode}",
            str(r.step_ms),
            ratio(r, r.mode, "gpt"),
            ratio(r, "kernels", "gpt"),
            ratio(r, "kernels", r.arch),
            f"{r.tokens_per_s:,.0f}",
            f"{r.tflops:,.1f}" if r.tflops >= 10 else f"{r.tflops:.2g}",
            "" if r.mfu is None else f"{r.mfu:.1%}",
            "" if r.peak_gib is None else f"{r.peak_gib:.2f}",
            f"{r.first_step_s:.2g}",
        ]
        for r in results
    ]
    names = ["step ms", "/ GPT", "/ GPT kernels", "/ kernels", "tokens/s", "TFLOP/s", "MFU"]
    columns = ["", *names, "peak GiB", "first step s"]
    parts = sorted({part for r in results for part in r.parts_ms})
    shares = [
        [f"{r.arch}-{r.size} {r.mode}", *(f"{r.parts_ms.get(p, 0):.2f}" for p in parts)]
        for r in results
    ]
    return [
        Table("A training step: median (quartiles)", columns, rows),
        Table("Milliseconds by part, of the profiler", ["", *parts], shares),
    ]


def measure_steps(
    size: str, runs: dict[Arch, RunConfig], mode: Mode, flags: Flags, device: torch.device
) -> list[StepResult]:
    """Build the models of one size, time them by turns, and free their memory."""
    torch.compiler.reset()
    ops = Choice("auto" if mode in OURS else "reference", flags.attention, fp8=mode == "fp8")
    with flash_attention_3(flags.attention):
        graphs = flags.cuda_graphs and device.type == "cuda"
        built = {
            arch: _Built(run, mode, flags.tokens, device, ops, graphs) for arch, run in runs.items()
        }
        steps = {arch: built[arch].step for arch in flags.archs}
        times = by_turns(steps, device, max(1, flags.repeats // TURNS), warmup=3)
        parts = {arch: shares(step, device) for arch, step in steps.items()}
    results = []
    fastest = peak_flops(device)
    for arch, run in runs.items():
        timing, done = times[arch], built[arch].tokens
        tflops = flops_per_token(run.model) * done / timing.median / 1e9
        results.append(
            StepResult(
                size,
                arch,
                mode,
                done,
                timing,
                built[arch].first_step_s,
                built[arch].peak_gib,
                tflops,
                None if fastest is None else 1e12 * tflops / fastest,
                parts[arch],
            )
        )
    del built, steps
    free(device)
    return results


class _Built:
    """A step that has run a few times, so that it is compiled and its memory known."""

    def __init__(
        self,
        run: RunConfig,
        mode: Mode,
        tokens: int | None,
        device: torch.device,
        ops: Choice,
        graphs: bool,
    ) -> None:
        if tokens is None:
            tokens = TOKENS_ON_CUDA if device.type == "cuda" else run.tokens_per_step
        batch = max(1, tokens // run.model.context)
        self.tokens = batch * run.model.context
        before = 0
        if device.type == "cuda":
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
        train = replace(run.train, batch_size=batch, micro_batch_size=None)
        check_fits(replace(run, train=train), device, remedy="use smaller --sizes or --tokens")
        self.step = training_step(run, mode, batch, device, ops, graphs)
        start = time.perf_counter()
        self.step()
        _wait(device)
        self.first_step_s = time.perf_counter() - start
        for _ in range(WARM_UPS):
            self.step()
        _wait(device)
        self.peak_gib: float | None = None
        if device.type == "cuda":
            self.peak_gib = (torch.cuda.max_memory_allocated(device) - before) / 2**30


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def training_step(
    run: RunConfig,
    mode: Mode,
    batch: int,
    device: torch.device,
    ops: Choice,
    graphs: bool = False,
) -> Callable[[], object]:
    """A function that trains for one step on fixed random tokens."""
    torch.manual_seed(run.train.seed)
    with torch.device(device):
        model = Transformer(run.model, ops)
        tokens = torch.randint(run.model.vocab_size, (batch, run.model.context + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    if mode in ("kernels", "fp8", "compiled"):
        compile_blocks(model)
    update = _our_update if mode in OURS or device.type != "cuda" else _plain_update
    clip_and_step = update(model, run)
    loss = torch.compile(model.loss) if mode == "compiled-model" else model.loss
    passes = Passes(model, run.train.precision, device, graphs)

    def our_step() -> None:
        passes(Batch(inputs, targets, None), targets.numel(), first=True)
        clip_and_step()

    def plain_step() -> None:
        with in_precision(run.train.precision, device):
            value = loss(inputs, targets)
        value.backward()
        clip_and_step()

    return our_step if mode in OURS else plain_step


def _our_update(model: Transformer, run: RunConfig) -> Callable[[], None]:
    """The optimizer and the recipes of the run, as in training."""
    optimizer = build_optimizer(run, model)
    params = list(model.parameters())

    def clip_and_step() -> None:
        if run.optim.logit_preconditioning:
            precondition_(model)
        norm = nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
        optimizer.scale_gradients(clipping_factor(norm, run.optim.grad_clip))
        optimizer.step()
        optimizer.zero_grad()

    return clip_and_step


def _plain_update(model: Transformer, run: RunConfig) -> Callable[[], None]:
    """What one would write in plain PyTorch: fused AdamW and clipping, plus `retract_`."""
    groups = parameter_groups(model, run.optim.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=run.optim.lr, fused=True)
    attach_retraction(optimizer, model)

    def clip_and_step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), run.optim.grad_clip)
        optimizer.step()
        optimizer.zero_grad()

    return clip_and_step
