"""The two blocks: the columns of the paper's Table 1, side by side.

    Transformer                      Normalized Transformer
    h_A ← ATTN(RMSNorm(h))           h_A ← Norm(ATTN(h))
    h   ← h + h_A                    h   ← Norm(h + α_A (h_A − h))
    h_M ← MLP(RMSNorm(h))            h_M ← Norm(MLP(h))
    h   ← h + h_M                    h   ← Norm(h + α_M (h_M − h))

Training, evaluation and decoding all run these blocks. In the right column, the Norm of h_A and the
update of h are one operation, `update`, which reads and writes h once; in the left, each addition
is fused with the RMSNorm that follows it (`Stream`).

Shapes: h is (B, T, D) between blocks and (B·T, D) inside them: without a reshape between a product
and the addition that follows, torch.compile makes one kernel of both, forward and backward.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from spherelm.errors import UserError
from spherelm.model.attend import CAUSAL, Attend
from spherelm.model.attention import Attention
from spherelm.model.config import Arch, ModelConfig
from spherelm.model.mlp import MLP
from spherelm.model.part import AUTO, Ops, Part
from spherelm.model.rope import check_table
from spherelm.model.scale import Scale
from spherelm.model.scaling import round_matrices
from spherelm.ops.interface import Operations


class Stream:
    """GPT's hidden state inside a block. An addition is deferred to the RMSNorm that reads the sum,
    so that one pass over memory does both."""

    def __init__(self, h: Tensor, added: Tensor | None = None) -> None:
        self._h, self._added = h, added

    def plus(self, y: Tensor) -> Stream:
        return Stream(self.value(), y)

    def value(self) -> Tensor:
        return self._h if self._added is None else self._h + self._added

    def rms_norm(self, gain: Tensor, ops: Operations) -> Tensor:
        if self._added is None:
            self._h, normed = ops.branch_rms_norm(self._h, gain)
        else:
            self._h, normed = ops.add_rms_norm(self._h, self._added, gain)
            self._added = None
        return normed


class RMSNorm(Part):
    """RMSNorm with a learned gain, starting at 1."""

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        super().__init__(config, ops)
        self.gain = nn.Parameter(torch.ones(config.d_model))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.gain.fill_(1.0)

    def forward(self, h: Tensor | Stream) -> Tensor:
        if isinstance(h, Stream):
            return h.rms_norm(self.gain, self.ops)
        return self.ops.rms_norm(h, self.gain)


class _Block(Part):
    """What both blocks share; none of it is in Table 1."""

    arch: ClassVar[Arch]

    def __init__(self, config: ModelConfig, ops: Ops) -> None:
        super().__init__(config, ops)
        if config.arch != self.arch:  # attention and MLP follow the config: a mix of both columns
            raise UserError(
                f"{type(self).__name__} is made from a ModelConfig of arch = {self.arch!r}, not "
                f"{config.arch!r}"
            )

    def flat(self, hidden: Tensor, rope: Tensor) -> Tensor:
        """The hidden states of all tokens in one list: (B, T, D) -> (B·T, D)"""
        check_table(rope, hidden.shape[-2], self.config.d_k)  # while T is still known
        return hidden.flatten(0, -2)

    def round_before_calls(self) -> None:
        """With FP8 products, round the matrices before each call."""
        if self.ops.hold is not None:
            self.register_forward_pre_hook(round_matrices)


class GPTBlock(_Block):
    """The left column of Table 1."""

    arch = "gpt"

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        super().__init__(config, ops)
        self.norm_attn = RMSNorm(config, ops)
        self.attention = Attention(config, ops)
        self.norm_mlp = RMSNorm(config, ops)
        self.mlp = MLP(config, ops)
        self.round_before_calls()

    def forward(self, hidden: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        h = Stream(self.flat(hidden, rope))
        h_A = self.attention(self.norm_attn(h), rope, attend)  # ATTN(RMSNorm(h))
        h = h.plus(h_A)  # h + h_A
        h_M = self.mlp(self.norm_mlp(h))  # MLP(RMSNorm(h))
        h = h.plus(h_M)  # h + h_M
        return h.value().view(hidden.shape)


class NGPTBlock(_Block):
    """The right column of Table 1."""

    arch = "ngpt"

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        super().__init__(config, ops)
        self.attention = Attention(config, ops)
        self.alpha_attn = Scale(config.d_model, config.resolve_scale("alpha_attn"))
        self.mlp = MLP(config, ops)
        self.alpha_mlp = Scale(config.d_model, config.resolve_scale("alpha_mlp"))
        self.signed_alpha = config.signed_alpha
        self.round_before_calls()

    def eigen_learning_rates(self) -> tuple[Tensor, Tensor]:
        """α_A and α_M as the update uses them: |α| unless `signed_alpha`.  (D,) each"""
        alpha_A, alpha_M = self.alpha_attn(), self.alpha_mlp()
        return (alpha_A, alpha_M) if self.signed_alpha else (alpha_A.abs(), alpha_M.abs())

    def forward(self, hidden: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        alpha_A, alpha_M = self.eigen_learning_rates()
        h = self.flat(hidden, rope)
        h_A = self.attention(h, rope, attend)  # ATTN(h)
        h = self.ops.update(h, h_A, alpha_A)  # Norm(h + α_A (Norm(h_A) − h))
        h_M = self.mlp(h)  # MLP(h)
        h = self.ops.update(h, h_M, alpha_M)  # Norm(h + α_M (Norm(h_M) − h))
        return h.view(hidden.shape)


Block = GPTBlock | NGPTBlock
