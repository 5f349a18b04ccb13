"""Which execution an operation takes: its Triton kernel, or plain PyTorch.

`auto` takes the kernels for CUDA tensors. A test or a benchmark can ask for one of the two:

    with kernels.use("reference"):
        loss = model.loss(tokens, targets)

With TRITON_INTERPRET=1 in the environment, `use("triton")` also runs on a CPU, slowly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from spherelm.errors import UserError
from spherelm.validate import require_choice

Execution = Literal["auto", "triton", "reference"]

LONGEST_ROW = 16384
"""The kernels hold a row in registers whole; longer ones go to plain PyTorch."""

_execution: Execution = "auto"
_HAS_TRITON = importlib.util.find_spec("triton") is not None


@contextmanager
def use(execution: Execution) -> Iterator[None]:
    """Take this execution inside the `with` block."""
    global _execution
    require_choice("kernels", execution, get_args(Execution))
    if execution == "triton" and not _HAS_TRITON:
        raise UserError("the kernels need triton: pip install triton, or use the reference path")
    before, _execution = _execution, execution
    try:
        yield
    finally:
        _execution = before


def runs_triton(*tensors: Tensor) -> bool:
    """Whether these tensors go to the Triton kernels.

    Subclasses such as DTensor stay with plain PyTorch, whose operators know them; so does float64,
    since the kernels compute in float32.
    """
    if _execution == "reference" or not _HAS_TRITON:
        return False
    if any(x.dtype == torch.float64 or type(x) not in (Tensor, nn.Parameter) for x in tensors):
        return False
    return _execution == "triton" or tensors[0].is_cuda
