"""`spherelm bench kernels`: each operation alone, forward and backward, executed in three ways.

    spherelm bench kernels

The bytes are the fewest that must move through memory, with each input read and each result written
once; divided by the time, they show how close an operation comes to the memory's speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spherelm.bench.flags import SEQUENCE
from spherelm.bench.flags import KernelsFlags as Flags
from spherelm.bench.fp8 import fp8_table, measure_fp8
from spherelm.bench.report import Report, Table, environment, measuring
from spherelm.bench.timing import Timing, measure
from spherelm.model.rope import rope_table
from spherelm.ops import reference
from spherelm.ops.device import choose_device, has_fp8


@dataclass(frozen=True)
class Case:
    """An operation with its inputs; `kernel` runs its forward and backward."""

    plain: Callable[..., Any]
    inputs: list[Tensor]
    bytes_moved: int
    """The fewest bytes of forward and backward together."""
    kernel: Callable[[], object] | None = None


@dataclass(frozen=True)
class KernelResult:
    """Milliseconds of forward and backward together; None if there is no such execution."""

    operation: str
    reference: Timing
    compiled: Timing | None
    kernel: Timing | None
    bytes_moved: int


def run(flags: Flags) -> Report:
    """Measure every operation."""
    device = choose_device(flags.device, "--device")
    results = measure_kernels(flags, device)
    rows = []
    for r in results:
        best = r.kernel or r.reference
        times = [str(t) if t is not None else "" for t in (r.reference, r.compiled, r.kernel)]
        speed = r.bytes_moved / best.median / 1e6
        rows.append([r.operation, *times, f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"])
    columns = ["", "plain ms", "plain, compiled", "kernel", "GB/s of the best"]
    table = Table("Forward and backward: median (quartiles)", columns, rows)
    data: dict[str, Any] = {"kernels": [asdict(r) for r in results]}
    tables = [table]
    if has_fp8(device):
        eight = measure_fp8(flags.tokens or 32768, flags.d_model or 1024, device, flags.repeats)
        data["fp8"] = [asdict(r) for r in eight]
        tables.append(fp8_table(eight))
    return Report(environment(device), data, tables)


def measure_kernels(flags: Flags, device: torch.device) -> list[KernelResult]:
    """Time every case; on a CPU only the reference."""
    on_cuda = device.type == "cuda"
    results = []
    for name, case in _cases(flags, device).items():
        measuring(name)

        def time(work: Callable[[], object]) -> Timing:
            return measure(work, device, flags.repeats, warmup=5)

        torch.compiler.reset()
        plain = time(_forth_and_back(case.plain, case.inputs))
        compiled = None
        if on_cuda:
            compiled = time(_forth_and_back(torch.compile(case.plain), case.inputs))
        kernel = None if case.kernel is None else time(case.kernel)
        results.append(KernelResult(name, plain, compiled, kernel, case.bytes_moved))
    return results


def _forth_and_back(operation: Callable[..., Any], inputs: list[Tensor]) -> Callable[[], object]:
    """Forward and backward of an operation, with the same incoming gradients every time."""
    trained = [x for x in inputs if x.requires_grad]
    grads: list[Tensor] = []

    def work() -> object:
        out = operation(*inputs)
        outs = list(out) if isinstance(out, tuple) else [out]
        if not grads:
            grads.extend(torch.randn_like(o) for o in outs)
        return torch.autograd.grad(outs, trained, grads)

    return work


def _cases(flags: Flags, device: torch.device) -> dict[str, Case]:
    on_cuda = device.type == "cuda"
    N = flags.tokens or (32768 if on_cuda else 1024)
    D = flags.d_model or (1024 if on_cuda else 128)
    K, T = 64, min(N, SEQUENCE)
    dtype = torch.bfloat16 if on_cuda else torch.float32
    row = N * D * (2 if on_cuda else 4)  # bytes of one (B, T, D)

    def stream(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=True)

    def vector(n: int) -> Tensor:
        return torch.rand(n, device=device, requires_grad=True)

    def matrix(n: int) -> Tensor:
        return (torch.randn(n, D, device=device, dtype=dtype) / D**0.5).requires_grad_()

    table = rope_table(T, K, 10000.0, device=device)
    batch = (N // T, T)

    def plain_qk(packed: Tensor, s_qk: Tensor) -> tuple[Tensor, ...]:
        q, k, v = packed.unflatten(-1, (-1, K)).chunk(3, dim=-2)
        return (*reference.qk_on_sphere(q, k, table, s_qk, True), v)

    def plain_rope(packed: Tensor) -> tuple[Tensor, ...]:
        q, k, v = packed.unflatten(-1, (-1, K)).chunk(3, dim=-2)
        return reference.rotate(q, table), reference.rotate(k, table), v

    def plain_swiglu(packed: Tensor) -> Tensor:
        return reference.swiglu(*packed.chunk(2, dim=-1))

    V = 32000 if on_cuda else 1000
    targets = torch.randint(V, (N,), device=device)

    def plain_loss(h: Tensor, E_output: Tensor, s_z: Tensor) -> Tensor:
        return reference.linear_cross_entropy(h, E_output, s_z, targets, "mean")

    h, y, packed = stream(N, D), stream(N, D), stream(*batch, 3 * D)
    cases = {
        "residual update": Case(reference.residual_lerp, [h, y, vector(D)], 8 * row),
        "add and RMSNorm": Case(reference.add_rms_norm, [h, y, vector(D)], 8 * row),
        "q and k on the sphere": Case(plain_qk, [packed, vector(D)], 12 * row),
        "RoPE": Case(plain_rope, [packed], 10 * row),
        "SwiGLU": Case(plain_swiglu, [stream(N, 8 * D)], 32 * row),
        "loss": Case(plain_loss, [h, matrix(V), vector(V)], 4 * row + 6 * V * D),
    }
    if not on_cuda:
        return cases
    kernels = _kernels({name: case.inputs for name, case in cases.items()}, table, targets)
    return {name: replace(case, kernel=kernels[name]) for name, case in cases.items()}


def _kernels(
    inputs: dict[str, list[Tensor]], table: Tensor, targets: Tensor
) -> dict[str, Callable[[], object]]:
    """Forward and backward of each kernel, without the products around it."""
    from spherelm.ops import triton as ours
    from spherelm.ops.triton import qk, swiglu

    packed, s_qk = (x.detach() for x in inputs["q and k on the sphere"])
    heads, K = s_qk.numel() // (2 * table.shape[2]), 2 * table.shape[2]
    grads = [torch.randn_like(packed[..., : heads * K]).unflatten(-1, (heads, K)) for _ in "qkv"]
    rows = packed.flatten(0, 1)

    def on_sphere() -> object:
        _, inverse = qk.qk_on_sphere_(rows, table, s_qk, heads, heads, True)
        return qk.qkv_backward(rows, table, s_qk, inverse, *grads, True)

    def rope() -> object:
        qk.rotate_qk_(rows, table, heads, heads)
        return qk.qkv_backward(None, table, None, None, *grads, False)

    def loss(h: Tensor, E_output: Tensor, s_z: Tensor) -> Tensor:
        return ours.linear_cross_entropy(h, E_output, s_z, targets, "mean")

    by_name: dict[str, Callable[..., Any]] = {
        "residual update": ours.residual_lerp,
        "add and RMSNorm": ours.add_rms_norm,
        "SwiGLU": swiglu.swiglu,
        "loss": loss,
    }
    timed = {name: _forth_and_back(kernel, inputs[name]) for name, kernel in by_name.items()}
    return timed | {"q and k on the sphere": on_sphere, "RoPE": rope}
