"""The processes of a run: which one this is, and what they communicate besides gradients.

Under `torchrun` there are several, laid out on a mesh of three dimensions:

    replicate × shard × tensor

Data is divided over replicate and shard, weights over shard and tensor. Without `torchrun` there is
one process and no mesh, and every method here is trivial.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from spherelm.config import ParallelConfig
from spherelm.distributed.agreement import agree
from spherelm.distributed.launcher import rank
from spherelm.distributed.watch import Watch
from spherelm.errors import UserError, first_line
from spherelm.ops.device import choose_device

T = TypeVar("T")
_meetings = itertools.count()


class Processes:
    """This process among those of the run; a context manager, which ends their communication."""

    def __init__(
        self, parallel: ParallelConfig, device: str, alike: Mapping[str, str] | None = None
    ) -> None:
        """Meet the others; if `alike` is not the same for all, all raise an error that says how."""
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = rank()
        self.tensor = parallel.tensor
        self.device = choose_device(device)
        self.mesh: DeviceMesh | None = None
        self.background_group: dist.ProcessGroup | None = None
        """For the thread that writes a checkpoint while training continues."""
        self._formed = False
        """Whether we formed the group of all processes, and so must end it."""
        self._watch: Watch | None = None
        if not self.distributed:
            parallel.shards(self.world_size)
        else:
            self._watch = Watch(parallel.timeout, parallel.start_timeout)
            try:
                self._meet(parallel, alike or {})
            except BaseException:
                self._watch.stop()
                raise

    def _meet(self, parallel: ParallelConfig, alike: Mapping[str, str]) -> None:
        """Form the group of all processes, and their mesh.

        `torchrun` keeps its store over a restart, with the addresses of processes that are gone
        (in torch 2.13, gloo tried to reach them). So every meeting of every start gets its own
        prefix in the store.
        """
        on_gpu = self.device.type == "cuda"
        for name in ("MASTER_ADDR", "MASTER_PORT", *(("LOCAL_RANK",) if on_gpu else ())):
            if name not in os.environ:
                raise UserError(f"RANK is set, but {name} is not; start processes with torchrun")
        if on_gpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        corner = f"start_{_restarts()}_{next(_meetings)}"
        start = timedelta(seconds=parallel.start_timeout)
        store = PrefixStore(corner, _connect(start, host=self.rank == 0))
        agree(store, self.rank, self.world_size, alike, parallel.start_timeout)
        shards = parallel.shards(self.world_size)
        assert self._watch is not None
        self._watch.join(PrefixStore(corner, _connect(start)), self.rank, self.world_size)
        # Torch's own timeout is longer than ours, which can say more than that a message is late.
        limit = timedelta(seconds=60 + 2 * max(parallel.timeout, parallel.start_timeout))
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
            dist.init_process_group(
                backend, store=store, rank=self.rank, world_size=self.world_size, timeout=limit
            )
            self._formed = True
        self.mesh = init_device_mesh(
            self.device.type,
            (parallel.replicate, shards, parallel.tensor),
            mesh_dim_names=("replicate", "shard", "tensor"),
        )
        self.background_group = dist.new_group(backend="gloo", timeout=limit)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._watch is not None:
            self._watch.stop()
        if kind is None and self._formed:
            dist.destroy_process_group()

    def at(self, what: str, *, long: bool = False, waits: bool = False) -> None:
        """Note that this process has come to a place where all others come too (see `Watch.at`)."""
        if self._watch is not None:
            self._watch.at(what, long, waits)

    @property
    def distributed(self) -> bool:
        """Whether `torchrun` started us, even if as a single process."""
        return "RANK" in os.environ and "WORLD_SIZE" in os.environ

    @property
    def restarted(self) -> bool:
        """Whether `torchrun` started us again after a failure."""
        return _restarts() > 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes logs and files."""
        return self.rank == 0

    @property
    def data_ranks(self) -> int:
        """Parts into which a batch is divided."""
        return self.world_size // self.tensor

    @property
    def data_rank(self) -> int:
        """Which part of a batch is ours: the ranks of a tensor group share one."""
        return self.rank // self.tensor

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place."""
        if self.mesh is not None:
            dist.all_reduce(values)
        return values

    def sum_over_data(self, values: list[float]) -> list[float]:
        """The sum of numbers over the parts of a batch; a tensor group all has the same ones."""
        if self.mesh is None:
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self.device) / self.tensor
        return self.sum_(total).tolist()

    def gather(self, value: T) -> list[T]:
        """The values of all processes, on each of them; for small ones."""
        if self.mesh is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def together(self, act: Callable[[], None]) -> None:
        """Let all processes `act`; if one of them raises a `UserError`, all do."""
        complaint = ""
        try:
            act()
        except UserError as error:
            complaint = str(error)
        for number, said in enumerate(self.gather(complaint)):
            if said:
                who = "" if self.world_size == 1 else f"rank {number}: "
                raise UserError(f"{who}{said}", everywhere=True)

    def from_main(self, act: Callable[[], T]) -> T:
        """The result of `act` in the main process, or its error, on all processes."""
        result: list[Any] = [None, None]
        if self.is_main:
            try:
                result[0] = act()
            except Exception as caught:
                result[1] = caught
        if self.mesh is not None:
            dist.broadcast_object_list(result, src=0)
        if result[1] is not None:
            if isinstance(result[1], UserError):
                result[1].everywhere = True
            raise result[1]
        return result[0]


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _connect(timeout: timedelta, host: bool = False) -> TCPStore:
    """A connection to the store through which processes meet; its calls are serialized.

    `torchrun` has its own store; under other launchers the first process must `host` one.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    launcher_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return TCPStore(
            address,
            port,
            is_master=host and not launcher_hosts,
            timeout=timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
    except dist.DistError as error:
        said = f"cannot meet the other processes at {address}:{port}: {first_line(error)}"
        raise UserError(said) from None
