"""`Scale`: every learned vector of factors of nGPT (alpha_A, alpha_M, s_qk, s_u, s_nu, s_z)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spherelm.model.config import ResolvedScale


class Scale(nn.Module):
    """A vector of n factors, stored at `scale` and read as `stored · init / scale`.

    Adam moves each stored number by about the learning rate, so a factor moves by about
    lr · init / scale: `init` is the initial value, and `scale` sets the effective learning rate
    (paper, 'Effective learning rates in Adam').
    """

    stored: Tensor

    def __init__(self, n: int, config: ResolvedScale) -> None:
        super().__init__()
        self.n = n
        self.config = config
        stored = torch.empty(n if config.mode == "vector" else 1)
        if config.mode == "fixed":
            self.register_buffer("stored", stored)
        else:
            self.stored = nn.Parameter(stored)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.stored.fill_(self.config.scale)

    def forward(self) -> Tensor:
        """The factors: (n,)"""
        return (self.stored * (self.config.init / self.config.scale)).expand(self.n)

    def extra_repr(self) -> str:
        c = self.config
        return f"{self.n}, init={c.init:g}, scale={c.scale:g}, mode={c.mode}"
