"""Rotary position embedding: a true rotation, read from a table.

Coordinate i of a head is paired with coordinate i + K/2 (Llama's layout), and the pair at position
t is rotated by the angle t · base^(−2i/K). That keeps lengths, and the dot product of two rotated
vectors depends only on the distance between their positions.

So scores depend only on distances in a GPT, and in an nGPT whose s_qk is a single number. A vector
s_qk, as in the paper, multiplies the coordinates *after* the rotation; where the two factors of a
pair differ, scores also depend on absolute positions. Then a text that does not begin at position 0
(padded on the left, or behind another document in its row) gets other logits than on its own,
unless `position_ids` gives its positions, for example from `data.loader.restarting_positions`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from typing_extensions import Self

from spherelm.errors import UserError
from spherelm.free_memory import require_memory


def rope_table(
    length: int,
    d_k: int,
    base: float,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """cos and sin of every position and pair, computed in float64: (2, T, K/2)."""
    device = torch.get_default_device() if device is None else device
    if device.type == "mps":  # has no float64
        return rope_table(length, d_k, base, torch.device("cpu"), dtype).to(device)
    needed = 20 * length * d_k  # an angle, its cosine and sine in float64, and both in float32
    if needed > 2**28 and device.type != "meta":  # less is not worth asking for
        require_memory(f"a table of {length:,} positions", needed, device, "use a shorter context")
    exponents = torch.arange(0, d_k, 2, dtype=torch.float64, device=device) / d_k
    positions = torch.arange(length, dtype=torch.float64, device=device)
    angles = torch.outer(positions, base**-exponents)
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


def check_table(rope: Tensor, length: int, d_k: int) -> None:
    """Refuse a table that does not fit the sequences' length or their heads.

    Attention reads both sizes off the table: with the wrong one, sequences would run into each
    other, or heads be split in two, silently.
    """
    positions, half = rope.shape[-2:]
    if positions != length or 2 * half != d_k:
        raise UserError(
            f"sequences of {length} tokens with heads of {d_k} need a RoPE table of that size, "
            f"RopeTable(context, {d_k}, base)({length}), not one of {positions} "
            f"positions for heads of {2 * half}"
        )


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of angles in a model of `dtype`: float32 at least."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class RopeTable(nn.Module):
    """The table for a context; recomputed, never cast, when the model changes dtype or device."""

    table: Tensor

    def __init__(self, length: int, d_k: int, base: float) -> None:
        super().__init__()
        self.length, self.d_k, self.base = length, d_k, base
        table = rope_table(length, d_k, base, dtype=_wide(torch.get_default_dtype()))
        self.register_buffer("table", table, persistent=False)

    def rebuild(self, length: int) -> None:
        """Make the table for another length; a longer one continues with the same angles."""
        device, dtype = self.table.device, _wide(self.table.dtype)
        self.length = length
        self.table = rope_table(length, self.d_k, self.base, device, dtype)

    def follow(self, device: torch.device, dtype: torch.dtype) -> None:
        """Have the table on this device, for a model of this dtype."""
        if (self.table.device, self.table.dtype) != (device, _wide(dtype)):
            self.to_empty(device=device).to(dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.rebuild(self.length)
        return self

    def forward(self, length: int, position_ids: Tensor | None = None) -> Tensor:
        """The first `length` positions: (2, T, K/2); or those given: (B, T) -> (2, B, T, K/2)."""
        if position_ids is not None:
            self._check(position_ids)
            return self.table[:, position_ids]
        if length > self.length:
            raise UserError(
                f"a sequence of {length} tokens is longer than the context of {self.length}; "
                f"to extrapolate call model.extend_context({length})"
            )
        return self.table[:, :length]

    def _check(self, position_ids: Tensor) -> None:
        """Refuse positions outside the table; only on the CPU: on a GPU, checking would stall."""
        if position_ids.dtype != torch.long:
            raise UserError(f"position_ids must be of dtype torch.long, not {position_ids.dtype}")
        if position_ids.device.type != "cpu" or torch.compiler.is_compiling():
            return
        first, last = int(position_ids.min()), int(position_ids.max())
        if first < 0 or last >= self.length:
            wrong = first if first < 0 else last
            raise UserError(
                f"position_ids must be from 0 to {self.length - 1} (the context), not {wrong}; "
                f"to extrapolate call model.extend_context({max(last, 0) + 1})"
            )
