"""Batches from token shards: shuffled, sharded by rank, prefetched, exactly resumable.

Shapes: B sequences of a rank, T context. Window i of a shard is its tokens iT, …, iT + T. The last
of these T + 1 tokens is the first of the next window, so every token is predicted once per epoch.
The windows of a split are numbered through all its shards; none crosses from one shard to the next.

Rank r of n takes the r-th part of every global batch, so the sequence of global batches, and
therefore the run, does not depend on the number of devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from spherelm.data.dataset import TokenSplit
from spherelm.data.order import TrainingOrder
from spherelm.errors import UserError
from spherelm.ops.names import IGNORE_INDEX
from spherelm.validate import require_int


class Batch(NamedTuple):
    """Sequences to learn from."""

    tokens: Tensor
    """(B, T) int64"""
    targets: Tensor
    """(B, T) int64: the token after each of `tokens`."""
    documents: Tensor | None
    """(B, T) int64: the number of each token's document, from 0 in every row; None by default."""
    position_ids: Tensor | None = None
    """(B, T) int64: positions that count from 0 in every document of a row; None by default."""


class WindowReader:
    """The windows of a split, copied out of the memory-mapped shards."""

    def __init__(
        self,
        split: TokenSplit,
        context: int,
        within_documents: bool = False,
        restart_positions: bool = False,
    ) -> None:
        require_int("context", context)
        self.split, self.context = split, context
        self.within_documents = within_documents
        self.restart_positions = within_documents and restart_positions
        per_shard = [(len(shard.tokens) - 1) // context for shard in split.shards]
        self._ends: NDArray[np.int64] = np.cumsum(per_shard)
        self._firsts: NDArray[np.int64] = self._ends - np.array(per_shard, np.int64)
        self.n_windows = int(self._ends[-1])
        if self.n_windows == 0:
            more = "use more text"
            if split.name == "val":
                more = "hold out more of the text with `spherelm prepare --val-fraction`"
            raise UserError(
                f"the {split.name} split has {split.n_tokens} tokens, too few for one context of "
                f"{context} and its last target; {more}, or use a shorter context"
            )
        if within_documents and any(shard.starts is None for shard in split.shards):
            raise UserError(
                "data.within_documents needs to know where documents start, which nanoGPT's files "
                "do not say; make shards of them with `spherelm prepare`"
            )
        # Each shard as overlapping rows: window i is row i, without a copy.
        self._windows = {
            number: sliding_window_view(shard.tokens, context + 1)[::context]
            for number, shard in enumerate(split.shards)
            if per_shard[number]
        }

    def read(self, windows: NDArray[np.int64], pin: bool = False) -> Batch:
        """Copy out the given windows, widened to int64."""
        shape = (len(windows), self.context)
        tokens = torch.empty(shape, dtype=torch.int64, pin_memory=pin)
        targets = torch.empty(shape, dtype=torch.int64, pin_memory=pin)
        documents = None
        if self.within_documents:
            documents = torch.zeros(shape, dtype=torch.int64, pin_memory=pin)
        shards = np.searchsorted(self._ends, windows, side="right")
        local = windows - self._firsts[shards]
        for shard in np.unique(shards):
            rows = np.flatnonzero(shards == shard)
            found = self._windows[shard][local[rows]]  # (rows, T + 1)
            tokens.numpy()[rows], targets.numpy()[rows] = found[:, :-1], found[:, 1:]
            starts = self.split.shards[shard].starts
            if documents is None or starts is None:
                continue
            # A 1 where a document starts inside a row: the running sum numbers the documents.
            begins = local[rows] * self.context
            first = starts.searchsorted(begins + 1)
            last = starts.searchsorted(begins + self.context)
            for i in np.flatnonzero(first < last):  # a row inside one document has no mark
                documents.numpy()[rows[i], starts[first[i] : last[i]] - begins[i]] = 1
        if documents is not None:
            np.cumsum(documents.numpy(), axis=1, out=documents.numpy())
        if documents is None or not self.restart_positions:
            return Batch(tokens, targets, documents)
        positions = restarting_positions(documents)
        return Batch(tokens, targets, documents, positions.pin_memory() if pin else positions)


def restarting_positions(documents: Tensor) -> Tensor:
    """Positions that count from 0 in every document of a row: (B, T) -> (B, T)

    `documents` is the number of each token's document. For a row padded on the left, use 0 for the
    padding and 1 for the text.
    """
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values


class Loader:
    """An endless iterator over the training batches of one rank.

    `batch_size` is that of the global batch, of which this rank gets `batch_size / world_size`
    sequences. The whole state is `consumed`, the number of sequences handed out on all ranks, not
    counting prefetched ones.
    """

    def __init__(
        self,
        split: TokenSplit,
        *,
        context: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        within_documents: bool = False,
        restart_positions: bool = False,
        device: torch.device | str = "cpu",
        prefetch: int = 2,
    ) -> None:
        require_int("batch_size", batch_size)
        require_int("prefetch", prefetch, at_least=0)
        if batch_size % world_size:
            raise UserError(
                f"train.batch_size must be a multiple of {world_size}, the number of devices "
                f"(with parallel.tensor, of groups of them) that share it, not {batch_size}"
            )
        self.reader = WindowReader(split, context, within_documents, restart_positions)
        self.batch_size, self.seed = batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.device = torch.device(device)
        self.prefetch = prefetch
        self.consumed = 0
        self._read: Callable[[], Batch] | None = None
        self._ahead: deque[Future[Batch]] = deque()
        """Batches being read, in order, by the single thread of `_reading`."""
        self._reading: ThreadPoolExecutor | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._read is None:
            self._read = _make_read(self)
            self._reading = ThreadPoolExecutor(1) if self.prefetch else None
        if self._reading is None:
            batch = self._read()
        else:
            while len(self._ahead) <= self.prefetch:
                self._ahead.append(self._reading.submit(self._read))
            batch = self._ahead.popleft().result()
        self.consumed += self.batch_size
        return _to_device(batch, self.device)

    def state_dict(self) -> dict[str, Any]:
        """The run's position in its data. The batch size and world size may change on resuming."""
        return {
            "consumed": self.consumed,
            "seed": self.seed,
            "context": self.reader.context,
            "data": self.reader.split.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` stopped; the data, its context and its order must be the same."""
        mine = self.state_dict()
        for key, what in (
            ("data", "tokens of the training data"),
            ("context", "context"),
            ("seed", "seed"),
        ):
            if state[key] != mine[key]:
                raise UserError(
                    f"cannot resume: the {what} must be {state[key]} as before, not {mine[key]}"
                )
        self.close()
        self.consumed = int(state["consumed"])

    def close(self) -> None:
        """Stop prefetching; prefetched batches are dropped, and read again if needed."""
        if self._reading is not None:
            self._reading.shutdown(cancel_futures=True)
        self._read = self._reading = None
        self._ahead.clear()


def evaluation_batches(
    split: TokenSplit,
    *,
    context: int,
    n_sequences: int,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    within_documents: bool = False,
    restart_positions: bool = False,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """A fixed set of windows, the same at every call, evenly spread over the split.

    `batch_size` is that of the global batch. All ranks get batches of the same shape: a rank with
    fewer sequences gets rows whose targets are all `IGNORE_INDEX`. So sum the losses and the counts
    of targets that are not ignored over all ranks before dividing.
    """
    require_int("n_sequences", n_sequences)
    require_int("batch_size", batch_size)
    reader = WindowReader(split, context, within_documents, restart_positions)
    n_sequences = min(n_sequences, reader.n_windows)
    windows = np.arange(n_sequences, dtype=np.int64) * reader.n_windows // n_sequences
    pin = torch.device(device).type == "cuda"
    for first in range(0, n_sequences, batch_size):
        whole = windows[first : first + batch_size]
        share = -(-len(whole) // world_size)
        mine = whole[rank * share : (rank + 1) * share]
        filling = np.zeros(share - len(mine), np.int64)
        batch = reader.read(np.concatenate([mine, filling]), pin)
        batch.targets[len(mine) :] = IGNORE_INDEX
        yield _to_device(batch, torch.device(device))


def _make_read(loader: Loader) -> Callable[[], Batch]:
    """The function that reads the next batch; it keeps its own position, ahead of `consumed`.

    It holds no reference to the loader, so that the thread ends when the loader is dropped.
    """
    reader, batch_size = loader.reader, loader.batch_size
    order = TrainingOrder(reader.n_windows, loader.seed)
    share = batch_size // loader.world_size
    mine = slice(loader.rank * share, (loader.rank + 1) * share)
    pin = loader.device.type == "cuda"
    position = loader.consumed

    def read() -> Batch:
        nonlocal position
        windows = order.windows(position, batch_size)[mine]
        position += batch_size
        return reader.read(windows, pin)

    return read


def _to_device(batch: Batch, device: torch.device) -> Batch:
    """Copy without waiting; torch does not reuse pinned memory before the copy is done."""
    if device.type == "cpu":
        return batch
    return Batch._make(None if t is None else t.to(device, non_blocking=True) for t in batch)
