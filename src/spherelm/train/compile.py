"""torch.compile on the block: one compilation serves all layers, so depth does not multiply it."""

from __future__ import annotations

from torch import nn

from spherelm.model.transformer import Transformer


def compile_blocks(model: Transformer) -> None:
    """Compile every block in place. Blocks of one model share the compiled code."""
    for block in model.blocks:
        assert isinstance(block, nn.Module)
        block.compile(fullgraph=True)
