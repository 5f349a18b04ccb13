"""The two FP8 formats, and the padding of their rows."""

from __future__ import annotations

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
"""The largest number of each format."""


def padded(rows: int) -> int:
    """The padded length of a row of a transposed operand: products need a multiple of 16."""
    return -(-rows // 16) * 16
