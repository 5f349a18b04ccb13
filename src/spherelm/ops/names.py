"""Names of the ways to compute attention; apart, so that the command line needs no torch."""

from __future__ import annotations

from typing import Literal

AttentionBackend = Literal["auto", "cudnn", "flash", "efficient", "math", "fa3", "fa4"]
"""auto takes the fastest that was measured; the rest are PyTorch's, and FlashAttention 3 and 4."""

IGNORE_INDEX = -100
"""A target with this value does not count in the loss."""
