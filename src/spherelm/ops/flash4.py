"""Causal attention by FlashAttention 4, if installed, as operators of torch.library.

torch.compile cannot trace its Python functions; as operators they become nodes in the graph of a
block. Install it with `pip install flash-attn-4` (Hopper and Blackwell).

Shapes: B batch, T time, H heads, G heads of k and v, K head dimension.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import importlib
import warnings
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from spherelm.ops.reference import first_derivative

_HEAD_SIZES = range(8, 129, 8)

# A warning of its compiler meant for its authors: a thousand characters before a run's first step.
warnings.filterwarnings("ignore", message="Argument aux_data .* cannot be converted")


@lru_cache(maxsize=1)
def unavailable() -> str | None:
    """Why it cannot run in this process; None if it can."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        return "it needs a GPU of compute capability 9.0 or later"
    try:
        _interface()
    except Exception as error:  # a beta built on betas: importing it fails in many ways
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("flash_attn"):
            return "pip install flash-attn-4"
        return f"flash-attn-4 does not load: {error}"
    return None


def takes(q: Tensor) -> bool:
    """Whether it supports tensors like this one."""
    halves = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and type(q) is Tensor and halves and q.shape[-1] in _HEAD_SIZES


@lru_cache(maxsize=1)
def _interface() -> ModuleType:
    module = importlib.import_module("flash_attn.cute.interface")
    for name in ("_flash_attn_fwd", "_flash_attn_bwd"):  # private, but PyTorch uses them too
        if not hasattr(module, name):
            raise ImportError(f"this version has no {name}")
    return module


@torch.library.custom_op("spherelm::flash_attention_4", mutates_args=())
def flash_attention_4(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """What the heads read, (B, T, H, K), and log Σ exp of their scores, (B, H, T)."""
    out, lse, *_ = _interface()._flash_attn_fwd(
        q, k, v, softmax_scale=scale, causal=True, return_lse=True
    )
    return out, lse


@flash_attention_4.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    batch, T, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((batch, heads, T), dtype=torch.float32)


@torch.library.custom_op("spherelm::flash_attention_4_backward", mutates_args=())
def flash_attention_4_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, grad: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, contiguous."""
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    _interface()._flash_attn_bwd(
        q, k, v, out, grad.contiguous(), lse, softmax_scale=scale, causal=True,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        dq=grad_q, dk=grad_k, dv=grad_v,
    )  # fmt: skip
    return grad_q, grad_k, grad_v


@flash_attention_4_backward.register_fake
def _(q, k, v, out, lse, grad, scale):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup_context(ctx, inputs, output) -> None:
    q, k, v, ctx.scale = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output)


@first_derivative
def _backward(ctx, grad, _):
    if grad is None:
        return None, None, None, None
    return *flash_attention_4_backward(*ctx.saved_tensors, grad, ctx.scale), None


flash_attention_4.register_autograd(_backward, setup_context=_setup_context)
