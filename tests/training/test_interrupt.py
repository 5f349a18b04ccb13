"""Signals that ask a run to stop."""

from __future__ import annotations

import signal

import pytest

from spherelm.training.interrupt import StopRequest


@pytest.mark.parametrize(
    "sent", [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)], ids=str
)
def test_the_first_signal_says_why_a_run_stops(sent: tuple[signal.Signals, ...]) -> None:
    """It decides the exit status: 0 for a scheduler, 130 for a person."""
    before = [signal.getsignal(number) for number in sent]
    with StopRequest() as stop:
        assert stop.signal is None
        for number in sent:
            signal.raise_signal(number)
    assert stop.signal == sent[0]
    assert [signal.getsignal(number) for number in sent] == before
