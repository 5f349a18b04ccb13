"""Vectors that two processes hold in parts: normalized whole, or refused; never part by part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

from spherelm import AdamW, Transformer, attach_retraction, retract_
from spherelm.config import OptimConfig
from spherelm.errors import UserError
from spherelm.model.sphere import largest_norm_deviation, matrices
from spherelm.optim.muon import MuonAndAdamW
from spherelm.optim.recipes.gated_adamw import GatedAdamW
from tests.model.tiny import random_tokens, tiny_config

ROUNDING = 4 * torch.finfo(torch.float32).eps


def by_columns(arch: str = "ngpt") -> Transformer:
    """A model whose matrices are cut through their vectors, as FSDP2 does when told to."""
    torch.manual_seed(0)
    model = Transformer(tiny_config(arch=arch))
    fully_shard(model, shard_placement_fn=lambda p: Shard(p.ndim - 1))
    return model


def whole_lengths(model: Transformer) -> torch.Tensor:
    assert isinstance(model.E_input, DTensor)
    return torch.linalg.vector_norm(model.E_input.full_tensor().detach(), dim=-1)


def as_one_of_two(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(store, 2))
    model = by_columns()
    with torch.no_grad():
        for _, matrix in matrices(model):
            matrix.mul_(3)
    assert largest_norm_deviation(model) == pytest.approx(2, abs=1e-6)
    retract_(model)
    assert (whole_lengths(model) - 1).abs().max() < ROUNDING
    assert largest_norm_deviation(model) < ROUNDING

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach_retraction(optimizer, model)
    model(random_tokens(model.config)).logsumexp(-1).sum().backward()
    optimizer.step()
    assert (whole_lengths(model) - 1).abs().max() < ROUNDING

    for make in (AdamW, GatedAdamW):
        with pytest.raises(UserError, match=r"E_input is sharded as .*splits its row vectors"):
            make(model, lr=0.1)
    with pytest.raises(UserError, match=r"E_input is sharded as .*splits its row vectors"):
        model.load_state_dict(model.state_dict())
    # A GPT's vectors need no norm, but Muon must know what a row is.
    with pytest.raises(UserError, match=r"0\.attention\.W_q is sharded as .*splits its row"):
        MuonAndAdamW(by_columns("gpt"), OptimConfig(algorithm="muon"))
    dist.destroy_process_group()


def test_two_processes_with_a_part_of_each_vector(tmp_path: Path) -> None:
    multiprocessing.spawn(as_one_of_two, (str(tmp_path / "store"),), nprocs=2)
