"""The learning rate over a run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spherelm import cosine_schedule


def test_cosine_by_hand() -> None:
    rates = [cosine_schedule(step, steps=4, peak=2.0) for step in range(5)]
    root = math.sqrt(0.5)
    assert rates == pytest.approx([2.0, 1 + root, 1.0, 1 - root, 0.0], abs=1e-15)


def test_warmup_by_hand() -> None:
    rates = [cosine_schedule(step, steps=7, peak=1.0, warmup_steps=3) for step in range(8)]
    root = math.sqrt(0.125)
    expected = [0.25, 0.5, 0.75, 1.0, 0.5 + root, 0.5, 0.5 - root, 0.0]
    assert rates == pytest.approx(expected, abs=1e-15)


def test_final_rate() -> None:
    assert cosine_schedule(10, steps=10, peak=1.0, final=0.1) == pytest.approx(0.1)
    assert cosine_schedule(5, steps=10, peak=1.0, final=0.1) == pytest.approx(0.55)
    assert cosine_schedule(0, steps=10, peak=1.0, final=0.1) == 1.0
    assert cosine_schedule(25, steps=10, peak=1.0, final=0.1) == pytest.approx(0.1)


@given(steps=st.integers(1, 60), data=st.data(), peak=st.floats(1e-6, 10.0))
def test_rate_rises_to_its_peak_and_falls_from_there(
    steps: int, data: st.DataObject, peak: float
) -> None:
    warmup = data.draw(st.integers(0, steps - 1))
    final = data.draw(st.floats(0.0, 1.0)) * peak
    rates = [
        cosine_schedule(step, steps=steps, peak=peak, warmup_steps=warmup, final=final)
        for step in range(steps)
    ]
    assert max(rates) == rates[warmup] == pytest.approx(peak)
    assert rates[: warmup + 1] == sorted(rates[: warmup + 1])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(rate > 0 for rate in rates)  # no step is wasted
