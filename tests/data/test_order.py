"""Every window once an epoch, in an order that looks random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spherelm.data.order import Permutation, TrainingOrder


@given(n=st.integers(1, 5000), key=st.binary(max_size=16))
def test_it_is_a_permutation(n: int, key: bytes) -> None:
    image = Permutation(n, key)(np.arange(n, dtype=np.uint64))
    assert np.array_equal(np.sort(image), np.arange(n))


@given(n=st.integers(2**31, 2**45), first=st.integers(0, 2**30))
def test_a_huge_domain_costs_no_memory_and_has_no_collisions(n: int, first: int) -> None:
    image = Permutation(n, b"key")(np.arange(first, first + 2000, dtype=np.uint64))
    assert len(np.unique(image)) == 2000
    assert image.max() < n


@pytest.mark.parametrize("n", [5, 12, 97])
def test_every_window_comes_to_every_position_equally_often(n: int) -> None:
    # Over 4000 keys a cell of the n x n table expects 4000/n visits. The chi-square statistic of
    # (n-1)^2 degrees of freedom has mean (n-1)^2 and deviation sqrt(2)(n-1): 5 deviations never
    # happen by chance, a biased shuffle is tens away.
    keys = 4000
    table = np.zeros((n, n))
    positions = np.arange(n, dtype=np.uint64)
    for key in range(keys):
        table[positions.astype(int), Permutation(n, str(key).encode())(positions).astype(int)] += 1
    expected = keys / n
    chi2 = ((table - expected) ** 2 / expected).sum()
    assert abs(chi2 - (n - 1) ** 2) < 5 * np.sqrt(2) * (n - 1)


def test_neighbours_do_not_stay_neighbours() -> None:
    n = 10_000
    image = Permutation(n, b"k")(np.arange(n, dtype=np.uint64)).astype(float)
    # The correlation of two independent columns of n numbers has deviation 1/sqrt(n) = 0.01.
    assert abs(np.corrcoef(image[:-1], image[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(image, np.arange(n))[0, 1]) < 0.05


@given(
    n=st.integers(1, 300),
    seed=st.integers(0, 2**40),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=6),
)
def test_the_order_does_not_depend_on_how_it_is_asked_for(
    n: int, seed: int, cuts: list[int]
) -> None:
    total = sum(cuts)
    whole = TrainingOrder(n, seed).windows(0, total)
    order, parts, first = TrainingOrder(n, seed), [], 0
    for count in cuts:
        parts.append(order.windows(first, count))
        first += count
    assert np.array_equal(np.concatenate(parts), whole)
    for epoch in range(total // n):
        assert np.array_equal(np.sort(whole[epoch * n : (epoch + 1) * n]), np.arange(n))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    n = 1000
    order = TrainingOrder(n, 0)
    assert not np.array_equal(order.windows(0, n), order.windows(n, n))
    assert not np.array_equal(order.windows(0, n), TrainingOrder(n, 1).windows(0, n))


def test_one_may_ask_for_what_came_before() -> None:
    order = TrainingOrder(10_000, 0)
    order.windows(5000, 4)
    assert np.array_equal(order.windows(4990, 4), TrainingOrder(10_000, 0).windows(4990, 4))


def test_the_order_stays_what_it_was() -> None:
    """A run that goes on with a later version must go on with the windows it has not seen."""
    order = TrainingOrder(1000, seed=7)
    assert order.windows(0, 6).tolist() == [645, 454, 341, 64, 370, 503]
    assert order.windows(1997, 6).tolist() == [
        21,
        896,
        241,
        498,
        88,
        857,
    ]  # across the end of an epoch
