"""A part of a model: a module that chooses the operations it computes with.

Blocks, attention, MLP and norms are parts, and so is the whole model. Each chooses its operations
when it is built, and again when it moves to another device or dtype, so `model.to("cuda")` switches
to the CUDA kernels. A part also works in a custom model, which `initialize_` then initializes as a
whole; until then the part's matrices hold NaN.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from spherelm.errors import UserError
from spherelm.model.config import ModelConfig
from spherelm.ops.choose import Choice, choose
from spherelm.ops.interface import Operations

Ops = Choice | Operations
AUTO = Choice()
M = TypeVar("M", bound=nn.Module)


def to_be_drawn(n: int, d_model: int) -> nn.Parameter:
    """A matrix for `initialize_` to fill; NaN until then, so that forgetting it shows at once.

    Uninitialized memory often holds zeros, which no retraction can normalize: blocks of zeros do
    nothing and learn nothing, and yet the loss falls, by what the head learns.
    """
    return nn.Parameter(torch.full((n, d_model), math.nan))


class Part(nn.Module):
    """A module made from a `ModelConfig`, which computes with the operations `ops`."""

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        if not isinstance(config, ModelConfig):
            raise UserError(f"{type(self).__name__} is made from a ModelConfig, not {config!r}")
        if not isinstance(ops, Choice | Operations):
            raise UserError(f"ops must be a Choice or Operations, not {ops!r}")
        super().__init__()
        self.config = config
        self._asked_for = ops
        self.choose_ops()

    def hold(self, forks: bool) -> Any:
        """What the operations keep between this part's products, if anything; see `fp8.Held`."""
        hold = self.ops.hold
        return None if hold is None else hold(self.config.arch == "ngpt", forks)

    def choose_ops(self) -> None:
        """Take the operations that suit the device and dtype of the parameters."""
        if isinstance(self._asked_for, Operations):
            self.ops = self._asked_for
            return
        held = next(chain(self.parameters(), self.buffers()), torch.empty(0))
        self.ops = choose(
            self._asked_for, self.config.update, self.config.d_model, held.device, held.dtype
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.choose_ops()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For a copy or a pickle: without the operations if they are chosen again on arrival, since
        kernels cannot be pickled; and, like torch's, without the compiled call."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        if isinstance(self._asked_for, Choice):
            del state["ops"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.choose_ops()


def computing_with(module: M, ops: Operations) -> M:
    """A twin of a module that shares its tensors but computes with other operations."""
    twin = copy.copy(module)
    if isinstance(twin, Part):
        twin.ops = twin._asked_for = ops
    twin._modules = {
        name: None if child is None else computing_with(child, ops)
        for name, child in module._modules.items()
    }
    return twin
