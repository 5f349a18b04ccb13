"""What all tests share: repeatable randomness."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# The same examples on every run and machine, and no failure because a machine was busy.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Every test draws from the same seed, whatever ran before it."""
    torch.manual_seed(0)
