"""Helpers for the words of a command line before it is parsed."""

from __future__ import annotations

from collections.abc import Mapping

from spherelm.errors import UserError
from spherelm.flags.fields import dashed


def long_forms(argv: list[str], short_forms: Mapping[str, str]) -> list[str]:
    """`argv` with one spelling per flag: --steps becomes --train.steps, --a_b becomes --a-b."""
    words = []
    for word in argv:
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            flag = dashed(flag)
        words.append(short_forms.get(flag, flag) + equals + value)
    return words


def given(argv: list[str]) -> frozenset[str]:
    """The dotted names of all fields that `argv`, in long forms, sets to any value."""
    flags = (word.partition("=")[0] for word in argv if word.startswith("--"))
    names = (flag[2:].replace("-", "_").rpartition(".") for flag in flags)
    return frozenset(section + dot + name.removeprefix("no_") for section, dot, name in names)


def value_of(flag: str, argv: list[str]) -> str | None:
    """The value of a flag that other flags' defaults depend on, read before parsing.

    Also None if the value is missing; the parser reports that later.
    """
    values = []
    for i, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            values.append(word.partition("=")[2])
        if word == flag and i + 1 < len(argv):
            values.append(argv[i + 1])
    if len(values) > 1:
        raise UserError(f"{flag} is given {len(values)} times; give it once")
    if values == [""]:
        raise UserError(f"{flag} is empty; give it a value, or leave it out")
    return values[0] if values else None
