"""Batches: right tokens, right order, the same on any number of ranks and after any restart."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spherelm.data.loader import Batch, Loader, evaluation_batches
from spherelm.data.open import open_dataset
from spherelm.errors import UserError
from spherelm.model.transformer import IGNORE_INDEX
from tests.data.conftest import MakeDataset

# The fixture only makes a folder; hypothesis may reuse it between examples.
relaxed = settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def firsts(batch: Batch) -> list[int]:
    """The first token of every row: with the counting dataset, where in the split it is from."""
    return batch.tokens[:, 0].tolist()


def test_a_block_is_a_run_of_tokens_and_the_target_is_the_next(make_dataset: MakeDataset) -> None:
    data = make_dataset([1001])
    batch = next(Loader(data.train, context=10, batch_size=8, seed=0))
    assert batch.tokens.shape == batch.targets.shape == (8, 10)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.documents is None
    assert torch.equal(batch.targets, batch.tokens + 1)
    assert torch.equal(batch.tokens, batch.tokens[:, :1] + torch.arange(10))


def test_every_token_is_a_target_once_an_epoch(make_dataset: MakeDataset) -> None:
    # 3 shards: 31, 100 and 52 tokens give 3, 9 and 5 blocks of 10; none crosses a shard.
    data = make_dataset([31, 100, 52])
    loader = Loader(data.train, context=10, batch_size=17, seed=3)
    assert loader.reader.n_windows == 17
    for _ in range(3):
        targets = torch.cat([next(loader).targets.flatten()])
        expected = [*range(1, 31), *range(32, 122), *range(132, 182)]
        assert sorted(targets.tolist()) == expected


def test_a_shard_too_short_for_a_block_is_passed_over(make_dataset: MakeDataset) -> None:
    loader = Loader(make_dataset([5, 41, 7]).train, context=10, batch_size=4, seed=0)
    assert sorted(firsts(next(loader))) == [5, 15, 25, 35]


@given(
    seed=st.integers(0, 1000),
    batch=st.sampled_from([4, 8, 12]),
    world=st.sampled_from([2, 4]),
    steps=st.integers(1, 12),
)
@relaxed
def test_ranks_together_see_what_one_device_sees(
    make_dataset: MakeDataset, seed: int, batch: int, world: int, steps: int
) -> None:
    data = make_dataset([301, 200])

    def batches(rank: int, world_size: int) -> list[torch.Tensor]:
        loader = Loader(
            data.train,
            context=16,
            batch_size=batch,
            seed=seed,
            rank=rank,
            world_size=world_size,
            prefetch=0,
        )
        return [next(loader).tokens for _ in range(steps)]

    shared = [
        torch.cat(parts) for parts in zip(*(batches(r, world) for r in range(world)), strict=True)
    ]
    assert all(torch.equal(a, b) for a, b in zip(shared, batches(0, 1), strict=True))


@given(before=st.integers(0, 9), after=st.integers(1, 9), prefetch=st.sampled_from([0, 1, 3]))
@relaxed
def test_resuming_from_one_integer_goes_on_exactly(
    make_dataset: MakeDataset, before: int, after: int, prefetch: int
) -> None:
    data = make_dataset([500])
    settings_ = {"context": 16, "batch_size": 8, "seed": 5, "prefetch": prefetch}
    whole = Loader(data.train, **settings_)
    stopped = Loader(data.train, **settings_)
    for _ in range(before):
        assert torch.equal(next(whole).tokens, next(stopped).tokens)
    if prefetch:
        time.sleep(0.002)  # let it read ahead: what is read ahead must not count
    state = stopped.state_dict()
    stopped.close()
    assert state["consumed"] == 8 * before
    resumed = Loader(data.train, **settings_)
    next(resumed)  # a loader already in use takes on the state, too
    resumed.load_state_dict(state)
    for _ in range(after):
        assert torch.equal(next(whole).tokens, next(resumed).tokens)
    whole.close()
    resumed.close()


def test_the_batch_size_may_change_on_resume(make_dataset: MakeDataset) -> None:
    data = make_dataset([2000])
    one = Loader(data.train, context=16, batch_size=8, seed=1)
    order = [start for _ in range(6) for start in firsts(next(one))]
    two = Loader(data.train, context=16, batch_size=4, seed=1)
    two.load_state_dict(one.state_dict() | {"consumed": 8})
    assert [start for _ in range(4) for start in firsts(next(two))] == order[8:24]


def test_resume_refuses_other_data_seed_and_context(make_dataset: MakeDataset) -> None:
    data, other = make_dataset([500]), make_dataset([501], name="other")
    state = Loader(data.train, context=16, batch_size=8, seed=1).state_dict()
    for loader, word in (
        (Loader(other.train, context=16, batch_size=8, seed=1), "tokens of the training data"),
        (Loader(data.train, context=8, batch_size=8, seed=1), "context must be 16"),
        (Loader(data.train, context=16, batch_size=8, seed=2), "seed must be 1"),
    ):
        with pytest.raises(UserError, match=word):
            loader.load_state_dict(state)


def test_documents_are_numbered_within_a_row(make_dataset: MakeDataset) -> None:
    # Documents of 7 tokens, contexts of 16, two shards whose documents start anew.
    data = make_dataset([100, 90], document=7)
    loader = Loader(data.train, context=16, batch_size=11, seed=0, within_documents=True)
    batch = next(loader)
    assert batch.documents is not None
    for tokens, documents in zip(batch.tokens, batch.documents, strict=True):
        position = torch.where(tokens < 100, tokens, tokens - 100)  # in its shard
        document = position // 7
        assert torch.equal(documents, document - document[0])


def test_positions_restart_with_each_document(make_dataset: MakeDataset) -> None:
    data = make_dataset([100, 90], document=7)
    settings = {"context": 16, "batch_size": 11, "within_documents": True}
    assert next(Loader(data.train, seed=0, **settings)).position_ids is None
    loader = Loader(data.train, seed=0, restart_positions=True, **settings)
    batches = [next(loader)]
    batches += evaluation_batches(data.val, n_sequences=11, restart_positions=True, **settings)
    for batch in batches:
        assert batch.position_ids is not None
        for tokens, positions in zip(batch.tokens, batch.position_ids, strict=True):
            position = torch.where(tokens < 100, tokens, tokens - 100)  # in its shard
            start = position // 7 * 7  # of its document
            assert torch.equal(positions, position - torch.maximum(start, position[0]))


def test_validation_is_fixed_and_spread_over_the_split(make_dataset: MakeDataset) -> None:
    data = make_dataset([1001])

    def rows(n: int, size: int) -> list[int]:
        batches = evaluation_batches(data.val, context=10, n_sequences=n, batch_size=size)
        return [start for batch in batches for start in firsts(batch)]

    assert rows(4, 3) == rows(4, 4) == [0, 250, 500, 750]
    assert rows(1000, 7) == list(range(0, 1000, 10))  # no more than there are


def test_ranks_share_validation_and_fill_up_with_ignored_rows(make_dataset: MakeDataset) -> None:
    data = make_dataset([1001])
    arguments = {"context": 10, "n_sequences": 7, "batch_size": 5}
    whole = [r for b in evaluation_batches(data.val, **arguments) for r in firsts(b)]
    seen, shapes = [], []
    for rank in range(3):
        batches = list(evaluation_batches(data.val, **arguments, rank=rank, world_size=3))
        shapes.append([tuple(batch.tokens.shape) for batch in batches])
        seen += [int(r[0]) - 1 for b in batches for r in b.targets if r[0] != IGNORE_INDEX]
    assert shapes[0] == shapes[1] == shapes[2]  # sharded models must run in step
    assert sorted(seen) == whole


def test_bad_settings_are_named(make_dataset: MakeDataset, tmp_path: Path) -> None:
    data = make_dataset([100])
    with pytest.raises(UserError, match="train split has 100 tokens, too few for one context"):
        Loader(data.train, context=100, batch_size=1, seed=0)
    assert Loader(data.train, context=99, batch_size=1, seed=0).reader.n_windows == 1
    with pytest.raises(UserError, match=r"multiple of 2, the number of devices .*, not 3"):
        Loader(data.train, context=9, batch_size=3, seed=0, world_size=2)
    np.arange(50, dtype=np.uint16).tofile(tmp_path / "train.bin")
    with pytest.raises(UserError, match="within_documents"):
        Loader(open_dataset(tmp_path).train, context=9, batch_size=1, seed=0, within_documents=True)


def test_a_forgotten_loader_ends_its_thread(make_dataset: MakeDataset) -> None:
    before = set(threading.enumerate())
    loader = Loader(make_dataset([500]).train, context=16, batch_size=8, seed=0)
    next(loader)
    (reader,) = set(threading.enumerate()) - before
    del loader
    gc.collect()
    reader.join(timeout=5)
    assert not reader.is_alive()


def test_an_error_of_reading_ahead_is_raised_where_its_batch_is_asked_for(
    make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(make_dataset([500]).train, context=16, batch_size=8, seed=0)
    read, calls = loader.reader.read, iter(range(100))

    def broken(*arguments: object) -> object:
        if next(calls) == 2:
            raise OSError("the disk is gone")
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loader.reader, "read", broken)
    assert next(loader).tokens.shape == next(loader).tokens.shape == (8, 16)
    with pytest.raises(OSError, match="the disk is gone"):
        next(loader)
    loader.close()


@pytest.mark.parametrize("prefetch", [1, 3])
def test_as_many_batches_as_asked_for_are_read_ahead(
    make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch, prefetch: int
) -> None:
    split = make_dataset([5000]).train
    loader = Loader(split, context=16, batch_size=8, seed=0, prefetch=prefetch)
    read, calls = loader.reader.read, threading.Semaphore(0)

    def counted(*arguments: object) -> object:
        calls.release()
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loader.reader, "read", counted)
    next(loader)
    for _ in range(1 + prefetch):
        assert calls.acquire(timeout=10)
    assert not calls.acquire(timeout=0.1)  # and no more
    loader.close()


@pytest.mark.gpu
def test_batches_arrive_on_the_device(make_dataset: MakeDataset) -> None:
    data = make_dataset([2000])
    there = Loader(data.train, context=16, batch_size=8, seed=0, device="cuda")
    here = Loader(data.train, context=16, batch_size=8, seed=0)
    for _ in range(50):
        batch = next(there)
        assert batch.tokens.device.type == "cuda"
        assert torch.equal(batch.tokens.cpu(), next(here).tokens)
