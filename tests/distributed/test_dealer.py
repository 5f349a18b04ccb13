"""Muon on matrices whose rows lie on three processes: the steps of one that holds them whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from spherelm.optim import batched_muon
from spherelm.optim.batched_muon import BatchedMuon
from spherelm.optim.dealer import Dealer

SHAPES = [(64, 64), (160, 64), (64, 64), (7, 64), (1, 64), (64, 64), (160, 64), (64, 160), (64, 64)]
"""Also fewer rows than three processes can have one of, and shares that are not alike."""
FIELDS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.3, "adjust_lr_fn": "match_rms_adamw"}


def as_one_of_three(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=3, store=dist.FileStore(store, 3))
    same_steps(at_once=2**26, messages=2 * 5)  # a shape at a time, there and back
    same_steps(at_once=64 * 64, messages=2 * 7)  # of nine matrices one each, of a shape at a time
    who_works()
    every_step_is_dealt_alike()
    dist.destroy_process_group()


def same_steps(at_once: int, messages: int) -> None:
    """To the bit, since the iterations are those of the same matrices."""
    batched_muon.AT_ONCE = at_once
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("shard",))
    torch.manual_seed(0)
    whole = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    cut = [torch.nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])) for p in whole]
    alone, together = BatchedMuon(whole, **FIELDS), BatchedMuon(cut, **FIELDS)
    for step in range(3):
        for p, rows in zip(whole, cut, strict=True):
            p.grad = torch.randn_like(p)
            rows.grad = distribute_tensor(p.grad, mesh, [Shard(0)])
        alone.step()
        with CommDebugMode() as communication:
            together.step()
        shapes_asked_for = len(set(SHAPES)) if step == 0 else 0
        assert communication.get_total_counts() == messages + shapes_asked_for
        for p, rows in zip(whole, cut, strict=True):
            assert torch.equal(p, rows.full_tensor())  # type: ignore[attr-defined]


def who_works() -> None:
    """No process has more than one matrix more than another, of all shapes together."""
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("shard",))
    matrix = distribute_tensor(torch.zeros(6, 4), mesh, [Shard(0)])
    dealer, dealt, worked = Dealer(matrix), 0, 0

    def work(stack: torch.Tensor) -> torch.Tensor:
        nonlocal worked
        worked += len(stack)
        return stack

    for number in (1, 1, 4, 1, 2, 4):
        rows = torch.full((number, 2, 4), float(dist.get_rank()))
        assert torch.equal(dealer.apply(work, rows, matrix.shape, dealt), rows)
        dealt += number
    every = torch.zeros(3)
    every[dist.get_rank()] = worked
    dist.all_reduce(every)
    assert every.sum() == 13
    assert every.max() - every.min() <= 1, every


def every_step_is_dealt_alike() -> None:
    """So that a resumed run is the one that was interrupted: it had begun anew."""
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("shard",))
    matrix = torch.nn.Parameter(distribute_tensor(torch.randn(6, 4), mesh, [Shard(0)]))
    muon, orthogonalized = BatchedMuon([matrix], **FIELDS), batched_muon.orthogonalized
    worked: list[int] = []

    def watched(stack: torch.Tensor, **fields: Any) -> torch.Tensor:
        worked[-1] += len(stack)
        return orthogonalized(stack, **fields)

    batched_muon.orthogonalized = watched
    for _ in range(3):
        worked.append(0)
        matrix.grad = distribute_tensor(torch.randn(6, 4), mesh, [Shard(0)])
        muon.step()
    assert worked == [int(dist.get_rank() == 0)] * 3


def test_three_processes_step_as_one(tmp_path: Path) -> None:
    multiprocessing.spawn(as_one_of_three, (str(tmp_path / "store"),), nprocs=3)
