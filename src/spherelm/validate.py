"""Checks of single values, and of all fields of a dataclass; errors name the field in one line."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from spherelm.errors import UserError


def require_choice(name: str, value: object, valid: tuple[str, ...]) -> None:
    """Require one of the words in `valid`."""
    if value not in valid:
        raise UserError(f"{name} must be one of {', '.join(valid)}, not {value!r}")


def require_bool(name: str, value: object) -> None:
    """Require true or false, not a number that stands for one of them."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, not {value!r}")


MOST = 2**63 - 1
"""The largest integer of torch and numpy."""


def require_int(name: str, value: object, at_least: int = 1, at_most: int = MOST) -> None:
    """Require a whole number from `at_least` to `at_most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise UserError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    if value > at_most:
        raise UserError(f"{name} must be a whole number of at most {at_most}, not {_short(value)}")


def _short(value: int) -> str:
    """A number, or if it is too long for a line, the number of its digits."""
    digits = int(value.bit_length() * 0.30103) + 1
    return f"{value}" if digits < 50 else f"one of about {digits} digits"


def _number_that(what: str, fits: Callable[[float], bool]) -> Callable[[str, object], None]:
    """A check for a finite number in a range, which `what` describes."""

    def require(name: str, value: object) -> None:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        number = cast(float, value) if real else math.nan
        try:
            fitting = math.isfinite(number) and fits(number)
        except OverflowError:  # an integer too large for a float
            fitting = False
        if not fitting:
            raise UserError(f"{name} must be {what}, not {value!r}")

    return require


require_positive = _number_that("a finite number above 0", lambda x: x > 0)
require_non_negative = _number_that("a finite number of at least 0", lambda x: x >= 0)
require_fraction = _number_that("at least 0 and below 1", lambda x: 0 <= x < 1)
require_share = _number_that("above 0 and at most 1", lambda x: 0 < x <= 1)

FromZero = Annotated[int, "at least 0"]
Seed = Annotated[int, "at least 0 and below 2^64"]
NonNegative = Annotated[float, "at least 0"]
Fraction = Annotated[float, "at least 0 and below 1"]
Share = Annotated[float, "above 0 and at most 1"]

_CHECKS: dict[Any, Any] = {
    bool: require_bool,
    int: require_int,
    FromZero: functools.partial(require_int, at_least=0),
    Seed: functools.partial(require_int, at_least=0, at_most=2**64 - 1),
    float: require_positive,
    NonNegative: require_non_negative,
    Fraction: require_fraction,
    Share: require_share,
}


def check_fields(config: Any, prefix: str = "") -> None:
    """Check each field of a dataclass by its annotation.

    A plain int must be at least 1, and a plain float above 0; for other ranges there are the types
    above. `prefix` is put before the names; with --, they are written as flags, with dashes.
    Strings are not checked.
    """
    for name, kind in _annotations(type(config)).items():  # type: ignore[arg-type]
        shown = name.replace("_", "-") if prefix == "--" else name
        _check(prefix + shown, getattr(config, name), kind)


@functools.cache
def _annotations(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _check(name: str, value: Any, kind: Any) -> None:
    if kind in _CHECKS:
        _CHECKS[kind](name, value)
    elif get_origin(kind) is Literal:
        require_choice(name, value, get_args(kind))
    elif get_origin(kind) in (Union, UnionType) and value is not None:  # X | None
        _check(name, value, get_args(kind)[0])
    elif get_origin(kind) is tuple:
        for each in value:
            _check(name, each, get_args(kind)[0])
    elif dataclasses.is_dataclass(kind) and not isinstance(value, kind):  # type: ignore[arg-type]
        raise UserError(f"{name} must be a {kind.__name__}, not {value!r}")  # type: ignore[union-attr]
