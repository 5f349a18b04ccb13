"""A walk through a network: the hidden state of each token after each half-block.

It repeats the steps of `model.block` with the same parts and keeps the results; a test compares it
with the model's own logits. The hidden state is float64 so that the rounding of many steps does not
mask statements about them, above all that they sum to a logit.

Shapes: T tokens, D d_model.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.distribution import wide
from spherelm.model.block import NGPTBlock
from spherelm.model.part import Part
from spherelm.model.transformer import Transformer
from spherelm.ops import reference
from spherelm.ops.choose import Choice, choose
from spherelm.ops.interface import Operand
from spherelm.ops.reference import normalize


@dataclass(frozen=True)
class HalfBlock:
    """What one attention or one MLP did to the hidden state."""

    layer: int
    """Counted from 1."""
    kind: str
    """attention or MLP"""
    h: Tensor
    """The hidden state before it: (T, D)"""
    output: Tensor
    """What was mixed or added to h: in nGPT normalized, such as Norm(ATTN(h)).  (T, D)"""
    alpha: Tensor | None
    """The eigen learning rates, (D,); None in GPT."""
    after: Tensor
    """The hidden state after it: (T, D)"""
    product_input: Tensor
    """The input of its last matrix, W_o or W_oMLP: (T, n)"""
    qkv: tuple[Tensor, Tensor, Tensor] | None = None
    """q, k and v as attention uses them: (1, T, heads, K) each; None for an MLP."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.layer}"


@dataclass(frozen=True)
class Walk:
    """The path of a text through a network."""

    tokens: Tensor
    """(T,)"""
    embedding: Tensor
    """The hidden state before the first block: (T, D)"""
    steps: list[HalfBlock]

    @property
    def last(self) -> Tensor:
        """The hidden state after the last block, before GPT's last norm: (T, D)"""
        return self.steps[-1].after

    @property
    def states(self) -> list[Tensor]:
        """The hidden state at each depth: one more than there are half-blocks."""
        return [self.embedding, *(step.after for step in self.steps)]

    @property
    def depths(self) -> list[str]:
        """The names of these states."""
        return ["embedding", *(step.name for step in self.steps)]


@torch.no_grad()
def walk(model: Transformer, tokens: Tensor) -> Walk:
    """Run the tokens of one text, (T,), through the model."""
    tokens = tokens.to(model.E_input.device)
    embedding = h = wide(model.embed(tokens[None]).flatten(0, 1))  # (T, D), as blocks have it
    rope = model.rope(len(tokens))
    update: Callable[[Tensor, Tensor, Tensor], Tensor] = getattr(
        reference, f"residual_{model.config.update}"
    )
    steps: list[HalfBlock] = []

    for layer, block in enumerate(model.layers, start=1):
        for kind in ("attention", "MLP"):
            attends = kind == "attention"
            part = block.attention if attends else block.mlp
            read, alpha = narrowed(model, h), None
            if isinstance(block, NGPTBlock):
                alpha = block.eigen_learning_rates()[0 if attends else 1]
            else:
                read = (block.norm_attn if attends else block.norm_mlp)(read)
            with _noting_inputs(part) as (inputs, attended):
                y = wide(part(read, rope) if attends else part(read))
            after = h + y if alpha is None else update(h, y, wide(alpha))
            output = y if alpha is None else normalize(y)
            qkv = attended[-1] if attended else None
            steps.append(HalfBlock(layer, kind, h, output, alpha, after, inputs[-1], qkv))
            h = after
    return Walk(tokens, embedding, steps)


def narrowed(model: Transformer, h: Tensor) -> Tensor:
    """A hidden state on the model's device and in its dtype."""
    return h.to(model.E_input.device, model.dtype)


def read_out(model: Transformer, h: Tensor) -> Tensor:
    """The logits of a hidden state at any depth, as if it were the last: (T, D) -> (T, V)"""
    h = narrowed(model, h)
    return model.logits(h if model.final_norm is None else model.final_norm(h))


@contextlib.contextmanager
def _noting_inputs(
    part: Part,
) -> Iterator[tuple[list[Tensor], list[tuple[Tensor, Tensor, Tensor]]]]:
    """Record the inputs of a part's products, the last one's at the end, and its q, k and v.

    The part runs in plain PyTorch, where q and k are the paper's: kernels apply s_qk² to q.
    """
    before, inputs = part.ops, list[Tensor]()
    attended: list[tuple[Tensor, Tensor, Tensor]] = []
    W, c = next(part.parameters()), part.config
    plain = choose(Choice(kernels="reference"), c.update, c.d_model, W.device, W.dtype)

    def linear(x: Tensor, W: Operand) -> Tensor:
        inputs.append(x.flatten(0, -2))
        return plain.linear(x, W)

    def attend(
        q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        attended.append((q, k, v))
        return plain.attend(q, k, v, mask, causal, scale)

    part.ops = dataclasses.replace(plain, linear=linear, attend=attend)
    try:
        yield inputs, attended
    finally:
        part.ops = before
