"""A block of a user's own: attention and MLP read the same state."""

from __future__ import annotations

from torch import Tensor

from spherelm.model.attend import CAUSAL, Attend
from spherelm.model.block import NGPTBlock


class Parallel(NGPTBlock):
    def forward(self, hidden: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        alpha_A, alpha_M = self.eigen_learning_rates()
        h = self.flat(hidden, rope)
        moved = self.ops.update(h, self.attention(h, rope, attend), alpha_A)
        return self.ops.update(moved, self.mlp(h), alpha_M).view(hidden.shape)
