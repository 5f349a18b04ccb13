"""`spherelm bench step`: the time of a whole training step, GPT beside nGPT.

    spherelm bench step --sizes 0.5b-1k 0.5b-4k 0.5b-8k

Forward, backward, clipping and optimizer, in one process on the same random tokens. Modes:

    kernels         our Triton kernels, blocks compiled: what `spherelm train` runs on CUDA
    kernels-eager   the same without torch.compile
    compiled        plain PyTorch, torch.compile on the blocks, torch's fused AdamW
    compiled-model  plain PyTorch, torch.compile on the whole model, torch's fused AdamW
    reference       plain PyTorch, not compiled: what runs on a CPU
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spherelm.bench.report import DeviceFlags, Report, Table, environment
from spherelm.errors import UserError
from spherelm.model.config import Arch
from spherelm.ops.names import AttentionBackend

if TYPE_CHECKING:
    from spherelm.bench.training import StepResult

Mode = Literal["kernels", "kernels-eager", "compiled", "compiled-model", "reference"]


@dataclass(frozen=True)
class Flags(DeviceFlags):
    """Time, throughput and memory of a training step, GPT beside nGPT."""

    sizes: tuple[str, ...] = ()
    """Presets without their gpt- or ngpt-, such as 0.5b-1k. Unset: 0.5b-1k on CUDA, else nano."""
    archs: tuple[Arch, ...] = ("gpt", "ngpt")
    """Which models."""
    modes: tuple[Mode, ...] = ()
    """Ways to execute them. Unset: kernels, compiled and reference on CUDA, else reference."""
    tokens: int | None = None
    """Tokens a step. Unset: 32768 on CUDA, else the preset's."""
    attention: AttentionBackend = "auto"
    """Which attention to use; auto takes the fastest that applies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.archs:
            raise UserError("--archs needs gpt, ngpt or both")


def run(flags: Flags) -> Report:
    """Measure every size in every mode."""
    from spherelm.bench.training import measure_steps
    from spherelm.ops.device import choose_device

    device = choose_device(flags.device, "--device")
    on_cuda = device.type == "cuda"
    sizes = flags.sizes or (("0.5b-1k",) if on_cuda else ("nano",))
    modes = flags.modes or (("kernels", "compiled", "reference") if on_cuda else ("reference",))
    results: list[StepResult] = []
    for size in sizes:
        for mode in modes:
            results += measure_steps(
                size,
                flags.archs,
                mode,
                device=device,
                tokens=flags.tokens,
                repeats=flags.repeats,
                attention=flags.attention,
            )
    steps = [result.as_json() for result in results]
    return Report(environment(device), {"steps": steps}, _tables(results, on_cuda))


def _tables(results: Sequence[StepResult], on_cuda: bool) -> list[Table]:
    """Steps side by side, and the time of their parts."""
    gpt = {(r.size, r.mode): r for r in results if r.arch == "gpt"}
    rows = []
    for r in results:
        other = gpt.get((r.size, r.mode))
        rows.append(
            [
                f"{r.arch}-{r.size} {r.mode}",
                str(r.step_ms),
                "" if other is None else f"{r.step_ms.median / other.step_ms.median:.3f}",
                f"{r.tokens_per_s:,.0f}",
                f"{r.tflops:,.1f}",
                f"{r.mfu:.1%}" if on_cuda else "",
                "" if r.peak_gib is None else f"{r.peak_gib:.2f}",
                f"{r.first_step_s:.1f}",
            ]
        )
    columns = ["", "step ms", "/ GPT", "tokens/s", "TFLOP/s", "MFU", "peak GiB", "first step s"]
    parts = sorted({part for r in results for part in r.parts_ms})
    shares = [
        [f"{r.arch}-{r.size} {r.mode}", *(f"{r.parts_ms.get(p, 0):.2f}" for p in parts)]
        for r in results
    ]
    return [
        Table("A training step: median (quartiles)", columns, rows),
        Table("Milliseconds by part, of the profiler", ["", *parts], shares),
    ]
