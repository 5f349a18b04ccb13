"""Fields of a dataclass are checked by their annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from spherelm.errors import UserError
from spherelm.validate import Fraction, FromZero, NonNegative, Seed, Share, check_fields


@dataclass(frozen=True)
class Part:
    count: int = 1


@dataclass(frozen=True)
class Whole:
    on: bool = True
    count: int = 1
    rate: float = 0.5
    from_zero: FromZero = 0
    seed: Seed = 2**64 - 1
    decay: NonNegative = 0.0
    beta: Fraction = 0.0
    top_p: Share | None = None
    limit: int | None = None
    lengths: tuple[int, ...] = (1, 2)
    word: Literal["one", "two"] = "one"
    text: str = ""
    part: Part = Part()


def test_what_fits_its_annotation_passes() -> None:
    check_fields(Whole())
    check_fields(Whole(top_p=1.0, limit=3, lengths=(), text=5))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("on", 1, "on must be true or false, not 1"),
        ("count", 0, "count must be a whole number of at least 1, not 0"),
        ("count", True, "count must be a whole number"),
        ("rate", 0.0, "rate must be a finite number above 0"),
        ("from_zero", -1, "from-zero must be a whole number of at least 0"),
        ("seed", 2**64, f"seed must be a whole number of at most {2**64 - 1}, not {2**64}$"),
        ("count", 10**60, "count must be .* at most [0-9]{19}, not one of about 61 digits$"),
        ("decay", -0.1, "decay must be a finite number of at least 0"),
        ("beta", 1.0, "beta must be at least 0 and below 1"),
        ("top_p", 1.5, "top-p must be above 0 and at most 1"),
        ("top_p", float("nan"), "top-p must be above 0 and at most 1"),
        ("limit", 0, "limit must be a whole number of at least 1"),
        ("lengths", (1, 0), "lengths must be a whole number of at least 1, not 0"),
        ("word", "three", "word must be one of one, two, not 'three'"),
        ("part", {"count": 1}, "part must be a Part, not"),
    ],
)
def test_what_does_not_is_named_as_it_is_typed(field: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^--{message}"):
        check_fields(Whole(**{field: value}), "--")
    with pytest.raises(UserError, match=f"^train.{field} must be"):
        check_fields(Whole(**{field: value}), "train.")
