"""Eight bits as a GPU rounds them, for tests: in Triton's interpreter, and seen from float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from spherelm.ops.eight_bits import LARGEST

BY_NAME = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}


@pytest.fixture
def exact_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter round to eight bits as torch and the hardware do, to nearest even; its
    own conversion cuts off, and loses a carry."""
    from triton.runtime import interpreter

    theirs = interpreter._convert_float

    def convert(x: Any, given: Any, wanted: Any, mode: Any) -> Any:
        dtype = BY_NAME.get(str(wanted))
        if dtype is None:
            return theirs(x, given, wanted, mode)
        rounded = torch.tensor(x.astype("float32")).to(dtype)
        return rounded.view(torch.uint8).numpy().reshape(x.shape)

    monkeypatch.setattr(interpreter, "_convert_float", convert)


def assert_rounds(bits: Tensor, exact: Tensor, slack: float = 1e-3) -> None:
    """Every number is the nearest one of its format to `exact`, float64, up to float32's errors.

    What is beyond the format must be its largest number.
    """
    assert bits.shape == exact.shape
    limit = LARGEST[bits.dtype]
    held = exact.clamp(-limit, limit)
    nearest = held.float().to(bits.dtype).double()
    off, best = (bits.double() - held).abs(), (nearest - held).abs()
    assert bool((off <= best + slack * held.abs() + 1e-7).all())
    # Not merely near: all but ties that float32 decides otherwise are the very number.
    assert float((bits.double() != nearest).double().mean()) < 5e-3


def assert_turned(turned: Tensor, bits: Tensor) -> None:
    """`turned` is the transpose, its rows filled up with zeros to a multiple of 16."""
    columns, rows = turned.shape
    assert (columns, rows) == (bits.shape[1], -(-bits.shape[0] // 16) * 16)
    turned_bits, plain = turned.view(torch.uint8), bits.view(torch.uint8)
    assert torch.equal(turned_bits[:, : bits.shape[0]], plain.t())
    assert not bool(turned[:, bits.shape[0] :].float().any())
