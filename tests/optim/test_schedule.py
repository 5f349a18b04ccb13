"""The learning rate over a run."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spherelm import cosine_schedule
from spherelm.config import OptimConfig
from spherelm.errors import UserError
from spherelm.optim.schedule import rate


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


def rates(steps: int, **fields: Any) -> list[float]:
    optim = OptimConfig(**{"lr": 1.0, **fields})
    return [rate(step, optim, steps) for step in range(steps + 1)]


def test_linear_by_hand() -> None:
    assert rates(4, schedule="linear") == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    found = rates(5, schedule="linear", warmup_steps=1, final_lr=0.2)
    assert found == pytest.approx([0.5, 1, 0.8, 0.6, 0.4, 0.2])


def test_wsd_by_hand() -> None:
    found = rates(10, schedule="wsd", decay_share=0.4, warmup_steps=1, final_lr=0.2)
    assert found == pytest.approx([0.5, *[1] * 6, 0.8, 0.6, 0.4, 0.2])
    all_decay = rates(4, schedule="wsd", decay_share=1.0)
    assert all_decay == pytest.approx(rates(4, schedule="linear"))


def test_log_by_hand() -> None:
    """1 − log(1 + r/ρ) / log(1 + 1/ρ) with ρ = 1/3: log₄(1 + 3r)."""
    found = rates(4, schedule="log", log_rho=1 / 3, final_lr=0.1)
    expected = [0.1 + 0.9 * (1 - math.log(1 + 3 * r, 4)) for r in (0, 0.25, 0.5, 0.75, 1)]
    assert found == pytest.approx(expected)
    late = rates(4, schedule="log", log_rho=1e6)  # a large ρ is a straight line
    assert late == pytest.approx(rates(4, schedule="linear"), abs=1e-6)


def test_the_cosine_is_what_it_was() -> None:
    optim = OptimConfig(lr=0.3, warmup_steps=3, final_lr=0.01)
    found = [rate(step, optim, 20) for step in range(20)]
    assert found == [
        cosine_schedule(step, steps=20, peak=0.3, warmup_steps=3, final=0.01) for step in range(20)
    ]


@given(
    schedule=st.sampled_from(["cosine", "linear", "wsd", "log"]),
    steps=st.integers(1, 60),
    data=st.data(),
)
def test_every_schedule_rises_to_its_peak_and_falls_from_there(
    schedule: str, steps: int, data: st.DataObject
) -> None:
    warmup = data.draw(st.integers(0, steps - 1))
    share, rho = data.draw(st.floats(0.01, 1.0)), data.draw(st.floats(1e-4, 100.0))
    found = rates(
        steps, schedule=schedule, warmup_steps=warmup, decay_share=share, log_rho=rho, final_lr=0.1
    )
    assert max(found) == pytest.approx(found[warmup]) == pytest.approx(1.0)
    assert found[: warmup + 1] == sorted(found[: warmup + 1])
    assert found[warmup:] == sorted(found[warmup:], reverse=True)
    assert found[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "cosin"}, "optim.schedule must be one of cosine, linear, wsd, log"),
        ({"decay_share": 1.5}, "optim.decay_share must be above 0 and at most 1"),
        ({"decay_share": 0.0}, "optim.decay_share must be above 0 and at most 1"),
        ({"log_rho": 0.0}, "optim.log_rho must be"),
        ({"algorithm": "sgd"}, "optim.algorithm must be one of adamw, muon"),
        ({"muon_lr": 0.0}, "optim.muon_lr must be"),
        ({"muon_momentum": 1.0}, "optim.muon_momentum must be"),
    ],
)
def test_what_no_schedule_can_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        OptimConfig(**fields)
