"""How large the operands of every product become, compared with what the sphere allows.

No entry of a unit vector exceeds 1, so neither does one of h, of nGPT's matrices, or of attention's
output, which is a mean of cosines. Eight-bit formats profit from such bounds: nothing overflows and
no scale needs to be measured. A GPT has no bounds, only the values that this text reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.walk import HalfBlock, Walk, narrowed
from spherelm.model.block import GPTBlock
from spherelm.model.transformer import Transformer


@dataclass(frozen=True)
class OperandBounds:
    """The largest magnitudes of one product's operands in each layer."""

    product: str
    matrices: tuple[float, ...]
    """Of the matrix with its factors, or of k, or of the attention weights: one number per layer
    (a single one for the logits)."""
    inputs: tuple[float, ...]
    """Of the other operand, on the text."""
    input_limit: float | None
    """The limit that no text can exceed; None if there is none."""


@torch.no_grad()
def look_at_bounds(model: Transformer, way: Walk) -> list[OperandBounds]:
    """The operands of the products of blocks and of the logits, on the text of the walk."""
    attention, mlp = way.steps[0::2], way.steps[1::2]
    attended = [step.qkv for step in attention if step.qkv is not None]
    q, k, v = (tuple(_largest(each[i]) for each in attended) for i in range(3))
    qkv: list[float] = []
    o: list[float] = []
    u_nu: list[float] = []
    o_mlp: list[float] = []
    q_limits: list[float] = []
    u_limits: list[float] = []
    for block in model.layers:
        W_q, W_k, W_v, W_o = block.attention.matrices(model.dtype)
        W_u, W_nu, W_o_mlp = block.mlp.matrices(model.dtype)
        qkv.append(max(_largest(W) for W in (W_q, W_k, W_v)))
        o.append(_largest(W_o))
        u_nu.append(max(_largest(W_u), _largest(W_nu)))
        o_mlp.append(_largest(W_o_mlp))
        if block.attention.s_qk is not None:
            # An entry of a unit vector is at most 1; without Norm, RoPE mixes two cosines.
            unit = 1 if model.config.qk_norm else math.sqrt(2)
            q_limits.append(unit * _largest(block.attention.s_qk()))
        if block.mlp.s_u is not None and block.mlp.s_nu is not None:
            # |u| ≤ s_u and |SiLU(ν)| ≤ |ν| ≤ s_ν · sqrt(D)
            both = block.mlp.s_u() * block.mlp.s_nu() * math.sqrt(model.config.d_model)
            u_limits.append(_largest(both))
    on_sphere = 1.0 if model.spherical else None
    end = narrowed(model, way.last)
    end = end if model.final_norm is None else model.final_norm(end)
    E_output = model.output_embedding(model.dtype)
    whole = (1.0,) * len(v)  # the first token attends only to itself, with weight 1
    return [
        OperandBounds("q, k, v", tuple(qkv), _read(model, attention), on_sphere),
        OperandBounds("q kᵀ", k, q, max(q_limits, default=None)),
        OperandBounds("softmax v", whole, v, on_sphere),
        OperandBounds("W_o", tuple(o), _given(attention), on_sphere),
        OperandBounds("u, ν", tuple(u_nu), _read(model, mlp), on_sphere),
        OperandBounds("W_oMLP", tuple(o_mlp), _given(mlp), max(u_limits, default=None)),
        OperandBounds("logits", (_largest(E_output),), (_largest(end),), on_sphere),
    ]


def _read(model: Transformer, steps: list[HalfBlock]) -> tuple[float, ...]:
    """The input of each half-block's first product: h, in GPT after its norm."""
    found = []
    for step, block in zip(steps, model.layers, strict=True):
        h = narrowed(model, step.h)
        if isinstance(block, GPTBlock):
            h = (block.norm_attn if step.kind == "attention" else block.norm_mlp)(h)
        found.append(_largest(h))
    return tuple(found)


def _given(steps: list[HalfBlock]) -> tuple[float, ...]:
    return tuple(_largest(step.product_input) for step in steps)


def _largest(x: Tensor) -> float:
    return float(x.detach().abs().max())
