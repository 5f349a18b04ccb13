"""`torch.optim.Muon` with all matrices of one shape in one batch: the same steps, fewer launches.

torch's Muon takes one matrix at a time: some twenty small kernels for each of the seven matrices of
a block. A Transformer's matrices have few shapes, so the Newton-Schulz iterations of all matrices
of a shape are batched products of their stack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from spherelm.model.sphere import local_rows
from spherelm.optim.dealer import Dealer, dealer_of

AT_ONCE = 2**26
"""How many numbers a process works on at a time, so that a large model needs no copy of all its
matrices."""


class BatchedMuon(torch.optim.Muon):
    """Takes the steps of torch's Muon, with Nesterov momentum and "match_rms_adamw", and keeps the
    same state."""

    _dealer: Dealer | None = None
    """For matrices whose rows several processes share; made at the first step."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p in moved:
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
            if moved:
                self._dealer = self._dealer or dealer_of(moved)
                momenta = [self.state[p]["momentum_buffer"] for p in moved]
                _step(group, moved, [p.grad for p in moved], momenta, self._dealer)


def _step(
    group: dict[str, Any],
    matrices: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    dealer: Dealer | None,
) -> None:
    assert group["nesterov"]
    assert group["adjust_lr_fn"] == "match_rms_adamw"
    lr, momentum = group["lr"], group["momentum"]
    alike: dict[torch.Size, list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        alike[matrix.shape].append(i)

    # All but the iterations is elementwise, so each process does it for its own rows.
    rows, gradients, momenta = (list(map(local_rows, x)) for x in (matrices, gradients, momenta))
    torch._foreach_lerp_(momenta, gradients, 1 - momentum)
    torch._foreach_mul_(rows, 1 - lr * group["weight_decay"])
    direct = partial(
        orthogonalized,
        coefficients=group["ns_coefficients"],
        iterations=group["ns_steps"],
        eps=group["eps"],
    )
    done = 0  # from 0 in every step, so that a resumed run deals as an uninterrupted one
    for shape, members in alike.items():
        length = lr * 0.2 * max(shape) ** 0.5  # "match_rms_adamw": steps of AdamW's RMS
        at_once = AT_ONCE if dealer is None else AT_ONCE * dealer.ways
        for portion in portions([shape.numel()] * len(members), at_once):
            few = members[portion]
            directions = torch._foreach_lerp(
                [gradients[i] for i in few], [momenta[i] for i in few], momentum
            )
            stack = torch.stack(directions).bfloat16()
            steps = direct(stack) if dealer is None else dealer.apply(direct, stack, shape, done)
            done += len(few)
            moved = [rows[i] for i in few]
            torch._foreach_add_(moved, list(steps.float().unbind()), alpha=-length)


def orthogonalized(
    stack: Tensor, coefficients: tuple[float, float, float], iterations: int, eps: float
) -> Tensor:
    """Each matrix with singular values near 1, by Newton-Schulz iterations.  (n, R, C) -> same"""
    tall = stack.shape[1] > stack.shape[2]
    x = stack.mT if tall else stack
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=eps)
    a, b, c = coefficients
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def portions(sizes: Sequence[int], at_once: int = AT_ONCE) -> Iterator[slice]:
    """Slices of a list of matrices of these sizes: each of at most `at_once` numbers, or of one
    matrix."""
    first, numbers = 0, 0
    for i, size in enumerate(sizes):
        if i > first and numbers + size > at_once:
            yield slice(first, i)
            first, numbers = i, 0
        numbers += size
    if first < len(sizes):
        yield slice(first, len(sizes))
