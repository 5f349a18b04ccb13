"""Checks of single values that end in one line naming the field."""

from __future__ import annotations

import math

from spherelm.errors import UserError


def require_choice(name: str, value: object, valid: tuple[str, ...]) -> None:
    """`value` is one of the words in `valid`."""
    if value not in valid:
        raise UserError(f"{name} must be one of {', '.join(valid)}, not {value!r}")


def require_bool(name: str, value: object) -> None:
    """`value` is true or false, not a number that means one of them."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, not {value!r}")


MOST = 2**63 - 1
"""The largest whole number that the libraries below us can count to."""


def require_int(name: str, value: object, at_least: int = 1, at_most: int = MOST) -> None:
    """`value` is a whole number of at least `at_least`, and not beyond what can be counted."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise UserError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    if value > at_most:
        raise UserError(f"{name} must be a whole number of at most {at_most}, not {_short(value)}")


def _short(value: int) -> str:
    """A number too long for a line by the number of its digits."""
    digits = int(value.bit_length() * 0.30103) + 1
    return f"{value}" if digits < 50 else f"one of about {digits} digits"


def require_positive(name: str, value: object) -> None:
    """`value` is a finite number above 0."""
    if not (number := _number(value)) or number <= 0:
        raise UserError(f"{name} must be a finite number above 0, not {value!r}")


def require_non_negative(name: str, value: object) -> None:
    """`value` is a finite number of at least 0."""
    if (number := _number(value)) is None or number < 0:
        raise UserError(f"{name} must be a finite number of at least 0, not {value!r}")


def require_fraction(name: str, value: object) -> None:
    """`value` is at least 0 and below 1."""
    if (number := _number(value)) is None or not 0 <= number < 1:
        raise UserError(f"{name} must be at least 0 and below 1, not {value!r}")


def _number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond the floats
        return None
