"""Muon for the matrices of the blocks, our AdamW for embeddings and factors: one optimizer.

Muon (Jordan 2024; "Muon is Scalable for LLM Training", arXiv 2502.16982) steps along the
orthogonalized momentum of a matrix's gradient; ours is torch's, batched. Its steps are scaled to
the size of AdamW's ("match_rms_adamw"), so that both can share a learning rate. Matrices of an nGPT
are put back on the sphere, as AdamW does with its own.

If devices share the rows of a matrix, each orthogonalizes some of the matrices whole (`dealer`),
since Newton-Schulz iterations need all rows of a matrix.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spherelm.config import OptimConfig
from spherelm.model.sphere import check_rows_whole, local_rows, matrices, unit_matrices
from spherelm.model.transformer import Transformer
from spherelm.ops.device import before_bf16_products
from spherelm.ops.reference import normalize
from spherelm.optim.adamw import AdamW, multiply_gradients
from spherelm.optim.batched_muon import BatchedMuon, portions


class MuonAndAdamW:
    """Two optimizers, `parts`, behind the interface of one.

    A group's `relative_lr` is its rate over `optim.lr`; the schedule's rate is multiplied by it.
    """

    def __init__(self, model: Transformer, optim: OptimConfig) -> None:
        check_rows_whole(matrices(model.blocks))
        in_blocks = [matrix for _, matrix in matrices(model.blocks) if matrix.requires_grad]
        held = {id(matrix) for matrix in in_blocks}
        before_bf16_products(model.E_input.device)  # Muon iterates in bf16, whatever the model does
        muon_lr = optim.lr if optim.muon_lr is None else optim.muon_lr
        self.muon = BatchedMuon(
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
        self._on_sphere: list[Tensor] = [
            matrix.parameter for matrix in unit_matrices(model) if id(matrix.parameter) in held
        ]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def scale_gradients(self, factor: Tensor) -> None:
        """Multiply all gradients of the next step by `factor`, a scalar on the device."""
        multiply_gradients(self.muon, factor)
        self.adamw.scale_gradients(factor)

    def step(self) -> None:
        self.muon.step()
        self._retract_()
        self.adamw.step()

    @torch.no_grad()
    def _retract_(self) -> None:
        """Put the rows of matrices that Muon moved back on the sphere, many at a time."""
        held = [local_rows(matrix) for matrix in self._on_sphere if matrix.grad is not None]
        for portion in portions([rows.numel() for rows in held]):
            few = held[portion]
            rows = normalize(torch.cat(few))
            torch._foreach_copy_(few, list(rows.split([len(matrix) for matrix in few])))
