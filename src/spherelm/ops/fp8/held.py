"""What a part of a model keeps for its FP8 products: rounded matrices and scales.

Attention and MLP have two products each: one going in (W_q, W_k, W_v or W_u, W_ν) and one coming
out (W_o or W_oMLP). A product has three operands, each with its own scale: its input and its
matrices in e4m3, and the gradient of its result in e5m2.

Scales are powers of two, so that multiplying by one does not round.

    nGPT   input and matrices   fixed: no number of a unit vector is above 1
           input of W_oMLP      from s_u and s_ν, which bound it (`spherelm.model.scaling`)
           gradients            from the largest number of the step before
    GPT    matrices             from their own largest number
           inputs, gradients    from the largest number of the step before
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from spherelm.ops.eight_bits import E4M3, E5M2, LARGEST

INPUT, MATRIX, GRADIENT = range(3)
"""The operands of a product, in the order of their scales."""
SLOTS = 8
"""Three operands of two products, padded to rows of 32 bytes, since torch.compile would copy
inputs that are not aligned to 16."""
ALIGNED = 4
"""How many float32 numbers are 16 bytes."""

UNIT_SCALE = 256.0
"""For numbers of at most 1: the largest power of two that e4m3 (up to 448) can hold. A typical
element of a 1024-dimensional unit vector becomes 8, and one in ten thousand underflows."""
FIRST_INPUT_SCALE = 8.0
"""GPT's inputs in the first step: holds up to 56, while numbers are around 1."""
FIRST_GRADIENT_SCALE = 32.0
"""Gradients in the first step, per token of the batch, since the loss is a mean: a guess that may
be off by 2^10 either way, since e5m2 spans 2^32."""

HEADROOM = (2.0, 1.0, 16.0)
"""By operand, how many times the last largest number a number may be and still fit."""


class Product(NamedTuple):
    """One of the two products of a part, for its operations; its first slot is `slot`."""

    scale: Tensor
    """(8,): what operands are multiplied by before they are rounded."""
    inverse: Tensor
    """(8, 4): 1 / scale, each aligned to 16 bytes, as cuBLAS wants them."""
    amax: Tensor
    """(8,): the largest numbers since the scales were set. Operators write here without telling
    torch.compile: nothing in a graph reads it, and a graph that knew would copy it."""
    matrix: Tensor
    """(n, D) in FP8."""
    turned: Tensor
    """(D, n): the same, transposed."""
    slot: int
    sphere: bool
    forks: bool


class Held(nn.Module):
    """The rounded matrices and scales of a part, as buffers outside the model's state dict.

    A training checkpoint keeps the scales, which depend on earlier steps: `state`.
    """

    scale: Tensor
    inverse: Tensor
    amax: Tensor
    matrix_0: Tensor
    matrix_1: Tensor
    turned_0: Tensor
    turned_1: Tensor

    def __init__(self, sphere: bool, forks: bool) -> None:
        """`sphere`: all matrices and inputs are made of unit vectors. `forks`: the result of this
        part's update is read by both a product and the next update."""
        super().__init__()
        self.sphere, self.forks = sphere, forks
        self.keep = False
        """Whether the matrices are known not to have changed since they were rounded."""
        self.filled = False
        """Whether they have been rounded for the current pass."""
        first = UNIT_SCALE if sphere else FIRST_INPUT_SCALE
        scale = torch.tensor([first, UNIT_SCALE, 0.0] * 2 + [1.0] * 2)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("inverse", torch.ones(SLOTS, ALIGNED), persistent=False)
        self.register_buffer("amax", torch.zeros(SLOTS), persistent=False)
        for name in ("matrix_0", "matrix_1", "turned_0", "turned_1"):
            self.register_buffer(name, torch.empty(0, dtype=E4M3), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device, but keep all dtypes: `model.bfloat16()` must not change them."""
        for name, buffer in self._buffers.items():
            if buffer is not None:
                device = fn(buffer.new_empty(0, dtype=torch.float32)).device
                at = torch.empty_like(buffer, device=device) if buffer.is_meta else None
                self._buffers[name] = buffer.to(device) if at is None else at
        return self

    @property
    def going_in(self) -> Product:
        return Product(
            self.scale, self.inverse, self.amax, self.matrix_0, self.turned_0, 0,
            self.sphere, self.forks,
        )  # fmt: skip

    @property
    def coming_out(self) -> Product:
        return Product(
            self.scale, self.inverse, self.amax, self.matrix_1, self.turned_1, 3,
            self.sphere, self.forks,
        )  # fmt: skip

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint of training must keep."""
        return {"scale": self.scale, "amax": self.amax}

    def room(self, products: Sequence[Sequence[Tensor]]) -> None:
        """Allocate the buffers for the matrices of both products, if not done yet."""
        for which, matrices in enumerate(products):
            device, D = matrices[0].device, matrices[0].shape[1]
            rows, there = sum(m.shape[0] for m in matrices), getattr(self, f"matrix_{which}")
            if there.shape != (rows, D) or there.device != device:
                setattr(self, f"matrix_{which}", torch.empty(rows, D, dtype=E4M3, device=device))
                setattr(self, f"turned_{which}", torch.empty(D, rows, dtype=E4M3, device=device))

    @torch.no_grad()
    def fill(self, products: Sequence[Sequence[Tensor]], fused: bool) -> None:
        """Round the current matrices of both products."""
        self.room(products)
        if not self.sphere:
            for which, scale in enumerate(matrix_scales([products])[0].unbind()):
                self._set_scale(3 * which + MATRIX, scale)
        if fused:
            fill_at_once([self], [products])
            return
        for which, matrices in enumerate(products):
            scaled = torch.cat([m.float() for m in matrices]) * self.scale[3 * which + MATRIX]
            rounded = scaled.clamp(-LARGEST[E4M3], LARGEST[E4M3]).to(E4M3)
            # On `.data`: autograd would see a change of the buffer, even with the same numbers.
            getattr(self, f"matrix_{which}").data.copy_(rounded)
            getattr(self, f"turned_{which}").data.copy_(rounded.t())

    def _set_scale(self, slot: int, scale: Tensor) -> None:
        self.scale.data[slot] = scale
        self.inverse.data[slot] = 1 / scale


@torch.no_grad()
def fill_at_once(held: Sequence[Held], products: Sequence[Sequence[Sequence[Tensor]]]) -> None:
    """Round the matrices of all these parts, two products each, in one kernel launch."""
    from spherelm.ops.triton.fp8_cast import Matrices, cast_matrices_

    todo = []
    for h, (going_in, coming_out) in zip(held, products, strict=True):
        todo.append(Matrices(going_in, h.scale[MATRIX], h.matrix_0, h.turned_0))
        todo.append(Matrices(coming_out, h.scale[3 + MATRIX], h.matrix_1, h.turned_1))
    cast_matrices_(todo)


def matrix_scales(products: Sequence[Sequence[Sequence[Tensor]]]) -> Tensor:
    """The scales of GPT's matrices, from the largest number of each product: (parts, 2)"""
    matrices = [m for part in products for product in part for m in product]
    largest = torch.stack(torch._foreach_norm(matrices, torch.inf)).float()
    counts = tuple(len(product) for part in products for product in part)
    largest = largest[_members(counts, largest.device)].amax(1)
    return power_of_two(LARGEST[E4M3] / largest).view(-1, 2)


@lru_cache(maxsize=16)
def _members(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """The indices of each product's matrices, padded to equal length by repeating the last."""
    rows, first = [], 0
    for count in counts:
        rows.append([first + min(i, count - 1) for i in range(max(counts))])
        first += count
    return torch.tensor(rows, device=device)


@torch.no_grad()
def advance(
    held: Sequence[Held],
    tokens: int,
    bounds: Tensor | None = None,
    of_matrices: Tensor | None = None,
) -> None:
    """Set new scales from the largest numbers seen with the old ones, and reset those to 0.

    An operand of which nothing was seen keeps its scale, so calling this twice changes nothing.
    `tokens`: those of the batch, for the first scale of gradients. `bounds`: the scales of the
    inputs of W_oMLP, in every second part, if known; `of_matrices`: those of GPT's matrices,
    (parts, 2).
    """
    scale, amax = (torch.stack([getattr(h, name) for h in held]) for name in ("scale", "amax"))
    wanted = power_of_two(_limits(scale.device) / amax)
    scale = torch.where(amax > 0, wanted, scale)
    guess = FIRST_GRADIENT_SCALE * 2 ** (tokens - 1).bit_length()
    scale = torch.where(scale > 0, scale, guess)
    if bounds is not None:
        scale[1::2, 3 + INPUT] = bounds
    if of_matrices is not None:
        scale[:, MATRIX : 3 + MATRIX + 1 : 3] = of_matrices
    # New tensors, not new numbers: the backward of an earlier pass still needs its own scales.
    inverse = (1 / scale)[..., None].repeat(1, 1, ALIGNED)
    rows = zip(scale.unbind(), inverse.unbind(), torch.zeros_like(amax).unbind(), strict=True)
    for h, row in zip(held, rows, strict=True):
        h.scale, h.inverse, h.amax = row


@lru_cache(maxsize=16)
def _limits(device: torch.device) -> Tensor:
    """(8,): the target for the largest number of each operand, after scaling. Cached on the device,
    since a copy from the host would wait for all work queued there."""
    by_operand = (LARGEST[E4M3] / HEADROOM[INPUT], 1.0, LARGEST[E5M2] / HEADROOM[GRADIENT])
    return torch.tensor([*by_operand * 2, 1.0, 1.0], device=device)


@torch.no_grad()
def scales_in(held: Sequence[Held], places: list[Tensor] | None) -> list[Tensor]:
    """Move all scales and largest numbers to `places`, a list that this returned before; without
    places they stay where they are. Returns where they are."""
    names = ("scale", "inverse", "amax")
    here = [getattr(h, name) for h in held for name in names]
    if places is None:
        return here
    torch._foreach_copy_(places, here)
    for number, h in enumerate(held):
        h.scale, h.inverse, h.amax = places[len(names) * number : len(names) * (number + 1)]
    return places


def power_of_two(x: Tensor) -> Tensor:
    """The largest power of two that is at most x, exactly; x > 0 of any shape, float32. Exponents
    are clamped, so that ∞ gives a finite result whose inverse does not underflow."""
    exponent = (x.float().view(torch.int32) >> 23) - 127
    return (exponent.clamp(-100, 100) + 127 << 23).view(torch.float32)


def held_by(model: nn.Module) -> dict[str, Held]:
    """All `Held` of a model, by name; none if it has no FP8 products."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Held)}


def scaling_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model's scales for a training checkpoint, by name."""
    return {
        f"{name}.{kind}": tensor
        for name, held in held_by(model).items()
        for kind, tensor in held.state().items()
    }


def count_share(x8: Tensor) -> Tensor:
    """(2,): how many numbers are zero, and how many are the largest of the format."""
    bits = x8.view(torch.uint8) & 0x7F
    largest = torch.tensor(LARGEST[x8.dtype]).to(x8.dtype).view(torch.uint8).item()
    return torch.stack(((bits == 0).sum(), (bits == largest).sum()))
