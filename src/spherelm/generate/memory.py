"""Whether prompts and their continuations fit into memory, asked before any of it is allocated."""

from __future__ import annotations

from spherelm.free_memory import require_memory
from spherelm.generate.folded import FoldedModel


def generation_bytes(model: FoldedModel, batch: int, prompt: int, new: int) -> int:
    """The cache, and what one block holds at its widest while prompts are read."""
    c = model.config
    widest = 4 * c.d_model + 3 * c.mlp_width  # h, its update, heads; u, ν and their product
    activations = batch * prompt * widest * model.dtype.itemsize
    return model.cache_bytes(batch, prompt + new) + activations


def check_fits(model: FoldedModel, batch: int, prompt: int, new: int) -> None:
    """Refuse prompts for which there is no memory, in one line that says how much there is."""
    require_memory(
        f"a cache for {prompt:,} tokens of prompt and {new:,} new ones, {batch} times,",
        generation_bytes(model, batch, prompt, new),
        model.device,
        "shorten the prompt, lower max_new_tokens, or give fewer prompts",
    )
