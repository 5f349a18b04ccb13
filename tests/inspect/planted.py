"""A network of one layer on a circle, whose every step can be computed by hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spherelm import ModelConfig, Transformer
from spherelm.model.config import ScaleConfig
from spherelm.model.scale import Scale

ALPHA_A, ALPHA_M, S_Z = 1 / 2, 1 / 3, 3.0


def on_circle() -> Transformer:
    """Token 0 starts at 0°; attention suggests 90°, the MLP 180°; E_output's rows are at 90°, 0°.

    With α_A = 1/2 LERP leads to 45°; from there, with α_M = 1/3, to (2 cos 45° − 1, 2 sin 45°)/3.
    """
    config = ModelConfig(
        vocab_size=2,
        d_model=2,
        n_layers=1,
        n_heads=1,
        d_mlp=1,
        context=4,
        alpha_attn=ScaleConfig(init=ALPHA_A),
        alpha_mlp=ScaleConfig(init=ALPHA_M),
        s_z=ScaleConfig(init=S_Z),
    )
    model = Transformer(config).double()
    for module in model.modules():
        if isinstance(module, Scale):
            module.reset_parameters()  # in float64
    block = model.layers[0]
    for parameter, rows in (
        (model.E_input, [[1, 0], [0, 1]]),
        (model.E_output, [[0, 1], [1, 0]]),
        (block.attention.W_v, [[1, 0], [0, 1]]),
        (block.attention.W_o, [[0, 1], [1, 0]]),
        (block.mlp.W_u, [[1, 0]]),
        (block.mlp.W_nu, [[1, 0]]),
        (block.mlp.W_o_mlp, [[-1, 0]]),
    ):
        assert parameter is not None
        parameter.data = torch.tensor(rows, dtype=torch.float64)
    return model


LAST = (2 * math.cos(math.pi / 4) - 1, 2 * math.sin(math.pi / 4))
LAST_ANGLE = math.degrees(math.atan2(LAST[1], LAST[0]))


def with_singular_values(rows: int, columns: int, values: list[float], seed: int = 0) -> Tensor:
    """A matrix with these singular values and random directions: (rows, columns)"""
    generator = torch.Generator().manual_seed(seed)
    n = len(values)
    left, right = (
        torch.linalg.qr(torch.randn(size, n, generator=generator, dtype=torch.float64))[0]
        for size in (rows, columns)
    )
    return left @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right.T
