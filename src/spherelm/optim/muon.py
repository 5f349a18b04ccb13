"""Muon for the matrices of the blocks, our AdamW for embeddings and factors: one optimizer.

`torch.optim.Muon` (Jordan 2024; "Muon is Scalable for LLM Training", arXiv 2502.16982) steps along
the orthogonalized momentum of a matrix's gradient. Its steps are scaled to the size of AdamW's
("match_rms_adamw"), so that both can share a learning rate. Matrices of an nGPT are put back on the
sphere, as AdamW puts back those that it moves.

Every matrix must be whole: rows sharded over devices have no Newton-Schulz iteration of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spherelm.config import OptimConfig
from spherelm.model.sphere import matrices, unit_matrices
from spherelm.model.transformer import Transformer
from spherelm.optim.adamw import AdamW, multiply_gradients


class MuonAndAdamW:
    """Two optimizers behind the interface of one; `parts` are the two.

    A group's `relative_lr` is its rate over `optim.lr`: whoever sets rates multiplies by it.
    """

    def __init__(self, model: Transformer, optim: OptimConfig) -> None:
        in_blocks = [matrix for _, matrix in matrices(model.blocks) if matrix.requires_grad]
        held = {id(matrix) for matrix in in_blocks}
        muon_lr = optim.lr if optim.muon_lr is None else optim.muon_lr
        self.muon = torch.optim.Muon(
            [{"params": in_blocks, "relative_lr": muon_lr / optim.lr}],
            lr=muon_lr,
            momentum=optim.muon_momentum,
            weight_decay=optim.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        self.adamw = AdamW(
            model,
            lr=optim.lr,
            betas=(optim.beta1, optim.beta2),
            eps=optim.eps,
            weight_decay=optim.weight_decay,
        )
        for group in self.adamw.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in held]
        self.parts: tuple[torch.optim.Optimizer, ...] = (self.muon, self.adamw)
        self._on_sphere = [m for m in unit_matrices(model) if id(m.parameter) in held]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def scale_gradients(self, factor: Tensor) -> None:
        """Multiply all gradients of the next step by `factor`, one number on the device."""
        multiply_gradients(self.muon, factor)
        self.adamw.scale_gradients(factor)

    def step(self) -> None:
        self.muon.step()
        for matrix in self._on_sphere:
            matrix.retract_()
        self.adamw.step()
