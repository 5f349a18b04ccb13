"""torch.compile on the block: one compilation serves all layers, so depth does not multiply it."""

from __future__ import annotations

import torch

from spherelm.model.transformer import Transformer


def compile_blocks(model: Transformer) -> None:
    """Compile every block's forward in place; blocks of one model share the compiled code.

    Not the call as a whole: what hangs on it from outside, such as FSDP2's gathering of weights,
    stays outside of the graph.
    """
    from spherelm.ops.add_in_place import ADD_IN_PLACE  # loads the compiler: a second or more

    for block in model.blocks:
        block.forward = torch.compile(
            block.forward, options={"post_grad_custom_post_pass": ADD_IN_PLACE}
        )
