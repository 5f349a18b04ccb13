"""Initial values of all parameters. A test checks that this table is true and complete.

what                       GPT                    nGPT
matrices, embeddings       N(0, init_std²)        N(0, 1/d_model), then rows normalized
W_o, W_o_mlp               the same / sqrt(2 L)   the same / sqrt(2 L), then rows normalized
gains of RMSNorm           1                      -
stored factors of `Scale`  1 (QK-norm's gain)     their `scale`

init_std is 0.02 unless the configuration says otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from spherelm.model.block import RMSNorm
from spherelm.model.config import ModelConfig
from spherelm.model.scale import Scale
from spherelm.model.sphere import matrices, retract_

OUTPUT_MATRICES = ("W_o", "W_o_mlp")


@torch.no_grad()
def initialize_(model: nn.Module, config: ModelConfig) -> None:
    """Draw all parameters of a model from torch's global generator.

    In a custom model that is all its matrices (two-dimensional parameters), and the gains and
    factors of our parts. Matrices marked as unit vectors are then normalized.
    """
    std = config.matrix_std
    for name, matrix in matrices(model):
        output = name.rpartition(".")[2] in OUTPUT_MATRICES
        matrix.normal_(0.0, std / math.sqrt(2 * config.n_layers) if output else std)
    for module in model.modules():
        if isinstance(module, (RMSNorm, Scale)):
            module.reset_parameters()
    retract_(model)
