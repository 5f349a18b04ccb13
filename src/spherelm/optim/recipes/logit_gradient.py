"""Logit gradient preconditioning (Training nGPT, arXiv 2608.01284), with its exponent q = 1.

With z = s_z ⊙ u, u = E_output h, the source backpropagates

    dL/du = (s_z / mean s_z)^q ⊙ dL/dz        in place of        dL/du = s_z ⊙ dL/dz

so that the gradients of earlier layers do not grow with s_z. For q = 1 that is the true gradient
over mean s_z; and since a backward pass is linear, it suffices to divide every gradient but that of
s_z by mean s_z afterwards. Adam is invariant to a constant factor, except for its epsilon; clipping
is not, nor are the moments while s_z grows.
"""

from __future__ import annotations

import torch

from spherelm.model.sphere import local_rows
from spherelm.model.transformer import Transformer


@torch.no_grad()
def precondition_(model: Transformer) -> None:
    """Divide all gradients of an nGPT except that of s_z by the mean of s_z, in place."""
    assert model.s_z is not None
    gradients = [
        local_rows(p.grad)
        for p in model.parameters()
        if p.grad is not None and p is not model.s_z.stored
    ]
    torch._foreach_div_(gradients, model.s_z().mean())
