"""The only place that decides how an operation is computed.

A model resolves its operations when it is built and when it moves to another device or dtype, from
the user's preferences, a `Choice`:

    Transformer(config)                                    # kernels on CUDA, else plain PyTorch
    Transformer(config, ops=Choice(kernels="reference"))   # plain PyTorch everywhere
    Transformer(config, ops=Choice(attention="cudnn"))
    Transformer(config, ops=operations)                    # your own `Operations`
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

import torch

from spherelm.errors import UserError
from spherelm.ops import packed, reference, reference_adamw
from spherelm.ops.attention import choose_attention
from spherelm.ops.interface import Operations
from spherelm.ops.names import AttentionBackend, Kernels, Update
from spherelm.validate import require_choice

LONGEST_ROW = 16384
"""The kernels hold a whole row in registers; longer ones go to plain PyTorch."""


@dataclass(frozen=True)
class Choice:
    """Which implementations the user prefers."""

    kernels: Kernels = "auto"
    attention: AttentionBackend = "auto"
    fp8: bool = False
    """Whether blocks multiply in FP8; on a CPU that is simulated, slowly."""
    packed: bool = False
    """Whether plain PyTorch packs the matrices of a product into one, as the kernels do."""

    def __post_init__(self) -> None:
        require_choice("kernels", self.kernels, get_args(Kernels))
        require_choice("attention", self.attention, get_args(AttentionBackend))
        if self.kernels == "triton" and not _has_triton():
            raise UserError("the kernels need triton: pip install triton, or kernels='reference'")


@lru_cache(maxsize=256)
def choose(
    choice: Choice, update: Update, d_model: int, device: torch.device, dtype: torch.dtype
) -> Operations:
    """The operations for a model of this width, with parameters of this dtype on this device."""
    kernels = takes_kernels(choice.kernels, d_model, device, dtype)
    ours: Any = packed if choice.packed else reference
    if kernels:
        from spherelm.ops import triton as ours

    def of(name: str) -> Any:
        return getattr(ours, name, None) or getattr(reference, name)

    chosen = Operations(
        kernels=kernels,
        operand=ours.operand,
        linear=ours.linear,
        qkv=ours.project_qkv,
        attend=choose_attention(choice.attention, device),
        swiglu=ours.project_swiglu,
        update=of(f"residual_{update}"),
        rms_norm=of("rms_norm"),
        branch_rms_norm=of("branch_rms_norm"),
        add_rms_norm=of("add_rms_norm"),
        loss=of("linear_cross_entropy"),
        argmax=of("argmax"),
    )
    if choice.fp8:
        from spherelm.ops.fp8 import with_fp8

        return with_fp8(chosen, lerp=update == "lerp")
    return chosen


def choose_adamw(kernels: Kernels, parameters: list[torch.Tensor]) -> Callable[..., None] | None:
    """Our AdamW step for these tensors; None if torch's is to be used.

    The kernel takes contiguous rows of at most `LONGEST_ROW`. Where it does not apply, tensors
    stored in less than float32 go to our reference, which rounds once, and others to torch.
    """
    if parameters and all(
        p.is_contiguous()
        and takes_kernels(kernels, p.shape[-1] if p.ndim > 1 else 1, p.device, p.dtype)
        for p in parameters
    ):
        from spherelm.ops.triton.adamw import adamw_

        return adamw_
    return reference_adamw.adamw_ if any(p.dtype.itemsize < 4 for p in parameters) else None


def takes_kernels(kernels: Kernels, row: int, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether to use the Triton kernels: on CUDA, unless told otherwise, and not for float64, since
    they compute in float32."""
    if kernels == "reference" or not _has_triton():
        return False
    if dtype == torch.float64 or row > LONGEST_ROW:
        return False
    return kernels == "triton" or device.type == "cuda"


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
