"""Where a run computes, and in which precision."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from functools import cache

import torch

from spherelm import cpu_isa
from spherelm.errors import UserError
from spherelm.ops.names import Precision


def choose_device(name: str, field: str = "train.device") -> torch.device:
    """The device called `name`; "auto" is CUDA, then Apple's MPS, then the CPU.

    `field` is the option that gave the name, for error messages.
    """
    if name == "auto":
        if torch.cuda.is_available():
            name = "cuda"
        else:
            name = "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):  # torch knows more
        raise UserError(f"{field} must be auto, cpu, cuda or mps, not {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{field} is cuda, but this machine shows no CUDA device; use cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"{field} is {name}, but there are {torch.cuda.device_count()} GPUs")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"{field} is mps, but this machine has none; use cpu")
    return device


def uses_bf16(precision: Precision, device: torch.device) -> bool:
    """Whether matrix products run in bfloat16."""
    return device.type == "cuda" if precision == "auto" else precision != "fp32"


def check_fp8(device: torch.device, what: str, instead: str) -> None:
    """Refuse `what` if the hardware has no FP8 products, and suggest `instead`."""
    if device.type != "cuda":
        raise UserError(
            f"{what} needs an NVIDIA GPU of compute capability 8.9 or later, "
            f"and this run is on {device.type}; use {instead}"
        )
    if not has_fp8(device):
        major, minor = torch.cuda.get_device_capability(device)
        raise UserError(
            f"{what} needs compute capability 8.9 or later, and "
            f"{torch.cuda.get_device_name(device)} has {major}.{minor}; use {instead}"
        )


def has_fp8(device: torch.device) -> bool:
    """Whether the device has FP8 products."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


@cache
def before_bf16_products(device: torch.device) -> None:
    """To be called before the process's first product if it will do bfloat16 ones; see `cpu_isa`.

    For training from Python; the command line does the same before it loads torch."""
    if device.type == "cpu":
        cpu_isa.avoid_broken_amx()


def in_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which to run the model: autocast to bfloat16, or nothing."""
    if uses_bf16(precision, device):
        before_bf16_products(device)
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def prepare_torch(seed: int, deterministic: bool) -> None:
    """Seed torch and set its process-wide switches."""
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = not deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if deterministic != torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(deterministic)  # imports the compiler: a second or more


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of all tensors on a GPU; on a CPU, of the whole process.

    0 if the system does not report it.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
