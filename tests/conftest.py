"""What all tests share: bf16 products that do not end the process, kernels that run without a GPU,
and repeatable randomness."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

from spherelm.cpu_isa import avoid_broken_amx

# Before torch is loaded; workers of pytest-xdist inherit the variable, so it is said once, and
# when pytest does not keep what is said for itself.
SAID: list[str] = []
avoid_broken_amx(say=SAID.append)

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

# Without a GPU kernels run in Triton's interpreter, which must be chosen before anything loads
# Triton, as parts of torch do.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The same examples on every run and machine, and no failure because a machine was busy.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    for line in SAID:
        print(line, file=sys.stderr)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Every test draws from the same seed, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """Commands that a test starts heed Ctrl-C: the background of a shell ignores it, pytest-xdist's
    workers do, and what they start would inherit that. Not by preexec_fn, which may hang where
    other threads run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
