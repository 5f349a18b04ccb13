"""Parse a command line into a frozen dataclass with tyro; a mistake becomes a one-line error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from spherelm.errors import UserError
from spherelm.flags.fields import PATHS, dashed, is_positional
from spherelm.flags.words import given, long_forms

if TYPE_CHECKING:
    from tyro._errors import ParseErrorEvent

A = TypeVar("A")

SHORT_FORMS = {
    "--data": "--data.path",
    "--steps": "--train.steps",
    "--seed": "--train.seed",
    "--device": "--train.device",
}
"""Short forms of the run's most used fields."""


def parse(
    flags: type[A],
    argv: list[str],
    verb: str,
    short_forms: Mapping[str, str] = MappingProxyType({}),
    meant: Callable[[str], str | None] = lambda word: None,
    **defaults: Any,
) -> A:
    """Parse `argv` into the dataclass `flags`; `defaults` override those of its fields.

    The help consists of the fields' docstrings and also lists `short_forms`, which must already be
    expanded in `argv`. `meant` guesses which option a stray word was meant as.
    """
    import tyro

    argv = long_forms(argv, {})
    required = {
        f.name: tyro.MISSING
        for f in dataclasses.fields(flags)  # type: ignore[arg-type]
        if f.default is f.default_factory is dataclasses.MISSING
    }
    start = flags(**required | defaults)
    if "-h" in argv or "--help" in argv:
        from spherelm.flags.page import page

        print(page(start, verb, short_forms, frozenset(required)))
        raise SystemExit(0)

    from spherelm.flags.mistakes import explain, refusing

    def refuse(event: ParseErrorEvent) -> None:
        message = explain(event, argv, start, short_forms, meant)
        raise UserError(f"{message} (spherelm {verb} --help lists the options)")

    with refusing(refuse):
        values = tyro.cli(flags, args=argv, prog=f"spherelm {verb}", default=start)
    _refuse_empty_names(values)
    for name in given(argv):
        if getattr(values, name, None) == ():
            raise UserError(f"--{dashed(name)} needs a value")
    return values


def _refuse_empty_names(flags: Any) -> None:
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if field.name in PATHS and (value == "" or (isinstance(value, tuple) and "" in value)):
            name = field.name if is_positional(field) else f"--{dashed(field.name)}"
            raise UserError(f"{name} is empty; name a file or folder")
