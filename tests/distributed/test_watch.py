"""Who is to blame where nothing moves, from what each process says of itself twice in a row."""

from __future__ import annotations

import pytest

from spherelm.distributed.watch import Sign, suspects


def at(count: int, beat: int | None = 1, waits: bool = False) -> Sign:
    return Sign(beat, count, f"place {count}", waits)


WAITS, WORKS = at(5, waits=True), at(5)
GONE = Sign()


@pytest.mark.parametrize(
    ("before", "now", "blamed", "why"),
    [
        pytest.param([WAITS], [at(5, 1)], [], "", id="one that is alone keeps nobody"),
        pytest.param(
            [WAITS, WORKS],
            [at(5, 2, waits=True), at(5, 1)],
            [1],
            "no sign of life from place 5 on",
            id="one has stopped to speak",
        ),
        pytest.param(
            [WAITS, GONE],
            [at(5, 2, waits=True), GONE],
            [1],
            "no sign of life from before its first word on",
            id="one has never spoken",
        ),
        pytest.param(
            [at(7, waits=True), at(5)],
            [at(7, 2, waits=True), at(6, 2)],
            [],
            "",
            id="one is behind, but moves",
        ),
        pytest.param(
            [at(7, waits=True), at(5)],
            [at(7, 2, waits=True), at(5, 2)],
            [1],
            "it is in place 5, the others are further",
            id="one is behind and stands",
        ),
        pytest.param([WORKS, WORKS], [at(5, 2), at(5, 2)], [], "", id="all are in a long step"),
        pytest.param(
            [WAITS, WORKS],
            [at(5, 2, waits=True), at(5, 2)],
            [1],
            "it is in place 5, where the others wait for it",
            id="one works where the others wait",
        ),
        pytest.param(
            [WAITS, WAITS],
            [at(5, 2, waits=True)] * 2,
            [0, 1],
            "all wait for each other in place 5",
            id="all wait",
        ),
    ],
)
def test_who_is_to_blame(before: list[Sign], now: list[Sign], blamed: list[int], why: str) -> None:
    assert suspects(before, now) == (blamed, why)
