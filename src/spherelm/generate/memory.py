"""Whether prompts and their continuations fit into memory, asked before any of it is allocated."""

from __future__ import annotations

import os

import torch

from spherelm.errors import UserError
from spherelm.generate.folded import FoldedModel


def available_memory(device: torch.device) -> int | None:
    """Bytes that could be allocated now on a device; None where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + reserved
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":") for line in file)
        return int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def generation_bytes(model: FoldedModel, batch: int, prompt: int, new: int) -> int:
    """The cache, and what one block holds at its widest while prompts are read."""
    c = model.config
    widest = 4 * c.d_model + 3 * c.mlp_width  # h, its update, heads; u, ν and their product
    activations = batch * prompt * widest * 4  # at most float32 each
    return model.cache_bytes(batch, prompt + new) + activations


def check_fits(model: FoldedModel, batch: int, prompt: int, new: int) -> None:
    """Refuse prompts for which there is no memory, in one line that says how much there is."""
    available = available_memory(model.device)
    needed = generation_bytes(model, batch, prompt, new)
    if available is not None and needed > available:
        raise UserError(
            f"{prompt:,} tokens of prompt and {new:,} new ones, {batch} times, need "
            f"{needed / 2**30:.1f} GiB, but {available / 2**30:.1f} GiB are free; "
            f"shorten the prompt, lower max_new_tokens, or give fewer prompts"
        )
