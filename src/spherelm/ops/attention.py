"""softmax(q kᵀ · scale + M) v through the fastest kernel there is for the tensors at hand.

Measured on an H200 (torch 2.11, flash-attn-4 4.0.0b36, head size 64), milliseconds of one layer of
32,768 tokens, forward + backward, at sequences of 1k / 4k / 8k:

    FlashAttention 4    0.26 + 0.53    0.61 + 1.52    1.08 + 2.85
    cuDNN               0.20 + 0.69    0.63 + 1.84    1.25 + 3.43
    SDPA's flash               1.65           4.17           7.58

So training takes FlashAttention 4 where it is installed and was measured to be faster, and
everything else cuDNN where it applies; SDPA falls through the rest in order. `force_attention`
names one.

Shapes: B batch, T time, H heads, G heads of k and v, K head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, activate_flash_attention_impl, sdpa_kernel

from spherelm.errors import UserError
from spherelm.ops import flash4
from spherelm.ops.names import AttentionBackend
from spherelm.validate import require_choice

_BY_NAME = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "fa3": SDPBackend.FLASH_ATTENTION,  # it takes the place of PyTorch's own
}
_FASTEST_FIRST = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]

_FLASH4_WINS = {(9, 0): (64,)}
"""Head sizes by compute capability."""
_FLASH4_WINS_FROM = 1024

_forced: AttentionBackend = "auto"


@contextmanager
def force_attention(backend: AttentionBackend) -> Iterator[None]:
    """Compute attention with this backend alone inside the `with` block."""
    global _forced
    require_choice("attention", backend, get_args(AttentionBackend))
    if backend == "fa4" and (why := flash4.unavailable()):
        raise UserError(f"attention fa4 is not available here: {why}")
    if backend == "fa3":
        try:
            activate_flash_attention_impl("FA3")
        except (ImportError, ModuleNotFoundError, ValueError) as error:
            raise UserError(f"attention fa3 is not available here: {error}") from None
    before, _forced = _forced, backend
    try:
        yield
    finally:
        _forced = before


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Causal attention, or with M where `mask` is true.

    q: (B, T, H, K), k, v: (B, T, G, K), mask: (B, 1, T, T) -> (B, T, H, K)
    """
    if _takes_flash4(q, k, mask):
        return flash4.flash_attention_4(q, k, v, scale)[0]
    if q.is_cuda and (_forced != "auto" or mask is None):
        backends = _FASTEST_FIRST if _forced == "auto" else [_BY_NAME[_forced]]
        with sdpa_kernel(backends, set_priority=True):
            return _attend(q, k, v, mask, scale)
    return _attend(q, k, v, mask, scale)


def _flash4_head_sizes() -> tuple[int, ...]:
    """The head sizes for which it was measured to be the fastest here; none without it."""
    if flash4.unavailable() is not None:
        return ()
    return _FLASH4_WINS.get(torch.cuda.get_device_capability(), ())


# What torch.compiler.assume_constant_result does, without loading the compiler for it: seconds.
_flash4_head_sizes._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _takes_flash4(q: Tensor, k: Tensor, mask: Tensor | None) -> bool:
    can = mask is None and flash4.takes(q)
    if _forced == "fa4":
        if not can:
            raise UserError(
                "attention fa4 computes bfloat16, heads of up to 128 in steps of 8, and no mask; "
                "use auto"
            )
        return True
    if _forced != "auto" or torch.are_deterministic_algorithms_enabled():
        return False  # cuDNN's is known to repeat to the bit
    trains = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    long = q.shape[1] >= _FLASH4_WINS_FROM
    return can and trains and long and q.shape[-1] in _flash4_head_sizes()


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    heads = F.scaled_dot_product_attention(
        q.transpose(1, 2),  # (B, H, T, K)
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return heads.transpose(1, 2)
