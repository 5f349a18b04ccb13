"""Rotary position embedding: a true rotation, read from a table.

Coordinate i of a head is paired with coordinate i + K/2 (Llama's layout), and the pair at position
t is turned by the angle t · base^(−2i/K). Turning keeps lengths, and the dot product of two turned
vectors depends only on the distance between their positions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from typing_extensions import Self

from spherelm.errors import UserError
from spherelm.free_memory import require_memory

WORTH_ASKING = 2**28
"""Bytes from which on we ask whether there is memory."""


def rope_table(
    length: int,
    d_k: int,
    base: float,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """cos and sin of every position and pair, computed in float64: (2, T, K/2)."""
    if device is not None and device.type == "mps":  # has no float64
        return rope_table(length, d_k, base, torch.device("cpu"), dtype).to(device)
    if device is None or device.type != "meta":
        _check_fits(length, d_k, device)
    exponents = torch.arange(0, d_k, 2, dtype=torch.float64, device=device) / d_k
    positions = torch.arange(length, dtype=torch.float64, device=device)
    angles = torch.outer(positions, base**-exponents)
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


def _check_fits(length: int, d_k: int, device: torch.device | None) -> None:
    """Refuse a table that would not fit: an angle, its cosine and sine in float64, and both."""
    needed = 20 * length * d_k
    if needed > WORTH_ASKING:
        device = torch.get_default_device() if device is None else device
        if device.type != "meta":
            what = f"a table of {length:,} positions"
            require_memory(what, needed, device, "use a shorter context")


class RopeTable(nn.Module):
    """The table for a context; made anew, never cast, when the model changes dtype or device."""

    table: Tensor

    def __init__(self, length: int, d_k: int, base: float) -> None:
        super().__init__()
        self.length, self.d_k, self.base = length, d_k, base
        self.register_buffer("table", rope_table(length, d_k, base), persistent=False)

    def rebuild(self, length: int) -> None:
        """Make the table for another length: longer ones extrapolate with the same angles."""
        wide = torch.float64 if self.table.dtype == torch.float64 else torch.float32
        self.length = length
        self.table = rope_table(length, self.d_k, self.base, self.table.device, wide)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.rebuild(self.length)
        return self

    def forward(self, length: int) -> Tensor:
        """The first `length` positions: (2, T, K/2)."""
        if length > self.length:
            raise UserError(
                f"a sequence of {length} tokens is longer than the context of {self.length}; "
                f"to extrapolate call model.extend_context({length})"
            )
        return self.table[:, :length]
