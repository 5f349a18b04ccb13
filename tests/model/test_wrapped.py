"""The sphere is found inside whatever a model was put into, and a model without one is refused."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.nn.utils import parametrize

from spherelm import AdamW, Transformer, attach_retraction, retract_
from spherelm.errors import UserError
from spherelm.model.mlp import MLP
from spherelm.model.sphere import largest_norm_deviation, splits_vectors, unit_matrices
from spherelm.training.parallel.tensor import divide_blocks
from tests.model.tiny import random_tokens, tiny_config

FLOAT32_ROUNDING = 4 * torch.finfo(torch.float32).eps
MATRICES = 2 + 7 * 2
"""Of the tiny model: two embeddings, and seven in each of two blocks."""


class Holder(nn.Module):
    """A wrapper that nobody has thought of."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.hidden_inside = nn.ModuleDict({"somewhere": inner})


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """A group of one process: wrappers that want a group get one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _fsdp2(model: Transformer) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=init_device_mesh("cpu", (1,)))
    return fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


def _tensor_parallel(model: Transformer) -> nn.Module:
    divide_blocks(model, init_device_mesh("cpu", (1,)))
    return model


def _assigned(model: Transformer) -> nn.Module:
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    return model


def _from_meta(model: Transformer) -> nn.Module:
    with torch.device("meta"):
        empty = Transformer(model.config)
    empty.to_empty(device="cpu")
    empty.load_state_dict(model.state_dict())
    return empty


def _stored_in_bf16(model: Transformer) -> nn.Module:
    for matrix in unit_matrices(model):
        matrix.parameter.data = matrix.parameter.data.bfloat16()
    return model.float()


def _pickled(model: Transformer) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


WRAPPERS: dict[str, Callable[[Any], nn.Module]] = {
    "DDP": nn.parallel.DistributedDataParallel,
    "DataParallel": nn.DataParallel,
    "Sequential": nn.Sequential,
    "AveragedModel": torch.optim.swa_utils.AveragedModel,
    "a wrapper of one's own": Holder,
    "torch.compile": lambda model: torch.compile(model),
    "DDP of torch.compile": lambda model: nn.parallel.DistributedDataParallel(torch.compile(model)),
    "fully_shard": _fsdp2,
    "tensor parallelism": _tensor_parallel,
    "to": lambda model: model.to(torch.float64).to(torch.float32),
    "deepcopy": copy.deepcopy,
    "load_state_dict(assign=True)": _assigned,
    "from meta": _from_meta,
    "bf16 storage": _stored_in_bf16,
    "pickle": _pickled,
}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.usefixtures("one_process")
def test_retraction_reaches_the_matrices(name: str) -> None:
    torch.manual_seed(3)
    model = WRAPPERS[name](Transformer(tiny_config()))
    assert len(unit_matrices(model)) == MATRICES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    attach_retraction(optimizer, model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3)
    assert largest_norm_deviation(model) > 1
    retract_(model)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


@pytest.mark.usefixtures("one_process")
def test_twenty_steps_under_ddp_stay_on_the_sphere() -> None:
    """Without the retraction, the deviation is 0.8 by then."""
    model = Transformer(tiny_config())

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model.loss(tokens, tokens.roll(-1, 1))

    wrapped = nn.parallel.DistributedDataParallel(Loss())
    optimizer = torch.optim.Adam(wrapped.parameters(), lr=0.05)
    attach_retraction(optimizer, wrapped)
    for _ in range(20):
        optimizer.zero_grad()
        wrapped(random_tokens(model.config)).backward()
        optimizer.step()
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_our_optimizer_sees_through_wrappers() -> None:
    model = Transformer(tiny_config())
    optimizer = AdamW(Holder(model), lr=0.05)
    tokens = random_tokens(model.config)
    model.loss(tokens, tokens).backward()
    optimizer.step()
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    with pytest.raises(UserError, match="weight_decay must be 0 for nGPT"):
        AdamW(Holder(model), lr=0.05, weight_decay=0.1)


def test_layers_of_others_beside_an_ngpt_are_left_alone() -> None:
    both = nn.ModuleList([Transformer(tiny_config()), nn.Linear(3, 4)])
    before = [p.detach().clone() for p in both[1].parameters()]
    retract_(both)
    for p, old in zip(both[1].parameters(), before, strict=True):
        assert torch.equal(p, old)


@pytest.mark.parametrize("act", [retract_, largest_norm_deviation, lambda m: AdamW(m, lr=1e-3)])
def test_a_model_that_is_not_ours_is_refused(act: Callable[[nn.Module], Any]) -> None:
    for model in (nn.Linear(3, 4), nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 3))):
        with pytest.raises(UserError, match="holds no matrices of spherelm's"):
            act(model)
    with pytest.raises(UserError, match=r"must be a torch\.nn\.Module, not NoneType"):
        act(None)  # type: ignore[arg-type]


def test_attaching_to_a_model_that_is_not_ours_is_refused() -> None:
    model = nn.Linear(3, 4)
    with pytest.raises(UserError, match="holds no matrices of spherelm's"):
        attach_retraction(torch.optim.SGD(model.parameters(), lr=0.1), model)


@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore")
def test_a_wrapper_that_flattens_parameters_is_refused() -> None:
    flat = FullyShardedDataParallel(Transformer(tiny_config()), device_id=torch.device("cpu"))
    with pytest.raises(UserError, match="use FSDP2's fully_shard"):
        retract_(flat)
    parametrized = Transformer(tiny_config())
    parametrize.register_parametrization(parametrized, "E_input", nn.Tanh())
    with pytest.raises(UserError, match="E_input is no longer a matrix"):
        retract_(parametrized)


@pytest.mark.parametrize(
    ("placement", "dim", "split"),
    [
        (Replicate(), -1, False),
        (Shard(0), -1, False),
        (Shard(1), -1, True),
        (Shard(0), 0, True),  # as some of the exported model lie
        (Shard(1), 0, False),
        (Partial(), -1, True),
    ],
)
@pytest.mark.usefixtures("one_process")
def test_what_splits_vectors(placement: Placement, dim: int, split: bool) -> None:
    matrix = DTensor.from_local(torch.ones(4, 6), init_device_mesh("cpu", (1,)), [placement])
    assert splits_vectors(matrix, dim) == split


def test_a_matrix_with_two_owners_is_found_once() -> None:
    """As tied embeddings of an exported model are: put back once a step, not twice."""
    first, second = MLP(tiny_config()), MLP(tiny_config())
    second.W_u = first.W_u
    assert len(unit_matrices(nn.ModuleList([first, second]))) == 5
