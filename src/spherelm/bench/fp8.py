"""Each kernel for eight-bit products alone, compared with the time that moving its bytes takes.

Part of `spherelm bench kernels` if the GPU supports such products. Inputs have the sizes of one
layer; the floor is the bytes that must move divided by the GPU's copy speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.bench.flags import SEQUENCE
from spherelm.bench.report import Table
from spherelm.bench.timing import Timing, copy_speed, measure
from spherelm.model.rope import rope_table
from spherelm.ops.eight_bits import E4M3, E5M2


@dataclass(frozen=True)
class Fp8Result:
    """Milliseconds of one kernel, and of copying as many bytes."""

    kernel: str
    ms: Timing
    bytes_moved: int
    floor_ms: float


def measure_fp8(N: int, D: int, device: torch.device, repeats: int) -> list[Fp8Result]:
    """Time every kernel for N tokens of width D."""
    speed = copy_speed(device, repeats)
    results = []
    for name, (work, moved) in cases(N, D, device).items():
        timing = measure(work, device, repeats, warmup=5)
        results.append(Fp8Result(name, timing, moved, 1e3 * moved / speed))
    return results


def cases(
    N: int, D: int, device: torch.device
) -> dict[str, tuple[Callable[[], object], int]]:  # fmt: skip
    """Each kernel with its inputs, and the fewest bytes that it moves."""
    from spherelm.ops.triton import fp8_cast, fp8_qkv, fp8_residual, fp8_swiglu

    F, K, T = 4 * D, 64, min(N, SEQUENCE)
    H = D // K
    row = 2 * N * D  # bytes of (N, D) in bfloat16, or in eight bits together with its transpose

    def stream(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    scale, amax = torch.ones((), device=device), torch.zeros((), device=device)
    h, y, grad, more = (stream(N, D) for _ in range(4))
    packed, grad_a = stream(N, 2 * F), stream(N, F)
    factors = torch.rand(F, device=device), torch.rand(F, device=device)
    qkv, grads = stream(N, 3 * D), tuple(stream(N // T, T, H, K) for _ in "qkv")
    table = rope_table(T, K, 10000.0, device=device)
    s_qk, inverse = torch.rand(D, device=device), torch.rand(N, H, device=device)
    alpha = torch.rand(D, device=device)
    h8, h8_turned = (torch.empty(s, dtype=E4M3, device=device) for s in ((N, D), (D, N)))
    grad8, grad8_turned = (torch.empty(s, dtype=E5M2, device=device) for s in ((N, D), (D, N)))
    W = [torch.randn(F, D, device=device) for _ in "un"]
    W8, W8_turned = (torch.empty(s, dtype=E4M3, device=device) for s in ((2 * F, D), (D, 2 * F)))
    fp8_cast.cast_(grad, scale, None, grad8, grad8_turned)
    return {
        "input of a product": (lambda: fp8_cast.cast_(h, scale, None, h8, h8_turned), 2 * row),
        "gradient of a product": (
            lambda: fp8_cast.cast_(grad, scale, amax, grad8, grad8_turned),
            2 * row,
        ),
        "transposed": (lambda: fp8_cast.turn_(grad8, grad8_turned), row),
        "W_u and W_nu": (
            lambda: fp8_cast.cast_matrices_([fp8_cast.Matrices(W, scale, W8, W8_turned)]),
            6 * 2 * F * D,
        ),
        "SwiGLU": (lambda: fp8_swiglu.swiglu(packed, factors, scale, None, E4M3), 12 * row),
        "SwiGLU, backward": (
            lambda: fp8_swiglu.swiglu_backward(packed, factors, grad_a, scale, amax, E5M2),
            20 * row,
        ),
        "q and k on the sphere, backward": (
            lambda: fp8_qkv.qkv_backward(
                qkv, table, s_qk, inverse, grads, True, scale, amax, E5M2  # type: ignore[arg-type]
            ),
            8 * row,
        ),
        "RoPE, backward": (
            lambda: fp8_qkv.qkv_backward(
                None, table, None, None, grads, False, scale, amax, E5M2  # type: ignore[arg-type]
            ),
            6 * row,
        ),
        "residual update, backward": (
            lambda: fp8_residual.residual_backward(h, y, alpha, grad, more, scale, amax, E5M2),
            5 * row + row // 2,
        ),
    }  # fmt: skip


def fp8_table(results: list[Fp8Result]) -> Table:
    """A table of the times and their floors."""
    rows = [
        [r.kernel, str(r.ms), f"{r.floor_ms:.3f}", f"{r.ms.median / r.floor_ms:.2f}"]
        for r in results
    ]
    columns = ["", "ms", "floor ms", "/ floor"]
    return Table("Kernels of eight-bit products: median (quartiles)", columns, rows)
