"""softmax(q kᵀ · scale + M) v by the fastest kernel for the given tensors.

Measured on an H200 (torch 2.11, flash-attn-4 4.0.0b36, head size 64), milliseconds of one layer of
32,768 tokens, forward + backward, at sequences of 1k / 4k / 8k:

    FlashAttention 4    0.26 + 0.53    0.61 + 1.52    1.08 + 2.85
    cuDNN               0.20 + 0.69    0.63 + 1.84    1.25 + 3.43
    SDPA's flash               1.65           4.17           7.58

So training takes FlashAttention 4 where it is installed and measured to be faster. Everything else
goes to cuDNN, or, where that does not apply, to the next of SDPA's backends that does. A backend
can also be chosen by name.

Shapes: B batch, T time, S time of the keys, H heads, G heads of k and v, K head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import (
    SDPBackend,
    activate_flash_attention_impl,
    restore_flash_attention_impl,
    sdpa_kernel,
)

from spherelm.errors import UserError
from spherelm.ops import flash4
from spherelm.ops.interface import Attend
from spherelm.ops.names import AttentionBackend
from spherelm.validate import require_choice

_BY_NAME = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "fa3": SDPBackend.FLASH_ATTENTION,  # replaces PyTorch's own, see `flash_attention_3`
}
_FASTEST_FIRST = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]

_FLASH4_WINS = {(9, 0): (64,)}
"""Head sizes for which FlashAttention 4 is the fastest, by compute capability."""
_FLASH4_WINS_FROM = 1024
"""The shortest sequence for which it is."""


def choose_attention(backend: AttentionBackend, device: torch.device) -> Attend:
    """Attention by this backend on CUDA; on other devices, PyTorch chooses."""
    require_choice("attention", backend, get_args(AttentionBackend))
    if backend == "fa4" and (why := flash4.unavailable()):
        raise UserError(f"attention fa4 is not available here: {why}")
    if device.type != "cuda":
        return attend_plainly
    if backend == "auto":
        wins = () if flash4.unavailable() else _flash4_wins(device)
        return _Fastest(wins)
    if backend == "fa4":
        return attend_by_flash4
    return _ByName(_BY_NAME[backend])


@contextmanager
def flash_attention_3(backend: AttentionBackend) -> Iterator[None]:
    """With backend "fa3", FlashAttention 3 in place of PyTorch's own inside the `with` block.

    PyTorch's switch is global to the process, so whoever runs a model sets it, and sets it back.
    """
    if backend != "fa3":
        yield
        return
    try:
        activate_flash_attention_impl("FA3")
    except (ImportError, ModuleNotFoundError, ValueError) as error:
        raise UserError(f"attention fa3 is not available here: {error}") from None
    try:
        yield
    finally:
        restore_flash_attention_impl()


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """`interface.Attend` by PyTorch's SDPA."""
    heads = F.scaled_dot_product_attention(
        q.transpose(1, 2),  # (B, H, T, K)
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        is_causal=causal and mask is None,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return heads.transpose(1, 2)


def attend_by_flash4(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Causal self-attention by FlashAttention 4; all else is refused."""
    if not _flash4_can(q, k, mask, causal):
        raise UserError(
            "attention fa4 computes bfloat16, heads of up to 128 in steps of 8, causal and without "
            "a mask; use auto"
        )
    heads: Tensor = flash4.flash_attention_4(q, k, v, scale)[0]
    return heads


class _ByName:
    """Attention by one particular kernel of PyTorch."""

    def __init__(self, backend: SDPBackend) -> None:
        self._backend = backend

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        with sdpa_kernel([self._backend], set_priority=True):
            return attend_plainly(q, k, v, mask, causal, scale)


class _Fastest:
    """Attention by the kernel that was measured to be the fastest for the given tensors."""

    def __init__(self, flash4_wins: tuple[int, ...]) -> None:
        """`flash4_wins`: the head sizes for which FlashAttention 4 is the fastest here."""
        self._flash4_wins = flash4_wins

    def takes_flash4(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> bool:
        if torch.are_deterministic_algorithms_enabled():
            return False  # cuDNN's is known to be reproducible to the bit
        trains = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
        long = q.shape[1] >= _FLASH4_WINS_FROM
        wins = trains and long and q.shape[-1] in self._flash4_wins
        return wins and _flash4_can(q, k, mask, causal)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        if self.takes_flash4(q, k, mask, causal):
            return attend_by_flash4(q, k, v, mask, causal, scale)
        if mask is not None:
            return attend_plainly(q, k, v, mask, causal, scale)
        with sdpa_kernel(_FASTEST_FIRST, set_priority=True):
            return attend_plainly(q, k, v, mask, causal, scale)


def _flash4_wins(device: torch.device) -> tuple[int, ...]:
    return _FLASH4_WINS.get(torch.cuda.get_device_capability(device), ())


def _flash4_can(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Whether FlashAttention 4 computes this. It aligns causality at the end of the keys, we align
    it at the beginning: the same only if there are as many queries as keys."""
    return causal and mask is None and q.shape[1] == k.shape[1] and flash4.takes(q)
