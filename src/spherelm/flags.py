"""Flags from a frozen dataclass: tyro reads them and makes the help, mistakes end in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from spherelm.errors import UserError

if TYPE_CHECKING:
    from tyro._arguments import ArgumentDefinition
    from tyro._errors import ParseErrorEvent

A = TypeVar("A")

SHORT_FORMS = {
    "--data": "--data.path",
    "--steps": "--train.steps",
    "--seed": "--train.seed",
    "--device": "--train.device",
}
"""Fields of a run that people set most."""


def parse(flags: type[A], argv: list[str], verb: str, **defaults: Any) -> A:
    """Parse `argv` into the dataclass `flags`, some of whose defaults may be others here.

    The docstrings of its fields are the help.
    """
    import tyro

    argv = long_forms(argv, {})
    required = {
        f.name: tyro.MISSING
        for f in dataclasses.fields(flags)  # type: ignore[arg-type]
        if f.default is f.default_factory is dataclasses.MISSING
    }
    start = flags(**required | defaults)

    def refuse(event: ParseErrorEvent) -> None:
        message = _explain(event, argv, start)
        raise UserError(f"{message} (spherelm {verb} --help lists the options)")

    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    with _refusing(refuse):
        values = tyro.cli(flags, args=argv, prog=f"spherelm {verb}", config=config, default=start)
    _refuse_empty_names(values)
    return values


def _refusing(refuse: Callable[[ParseErrorEvent], None]) -> AbstractContextManager[None]:
    """Let `refuse` say what is wrong; in a tyro without the hook for it, tyro says so itself."""
    try:
        from tyro._errors import on_parse_error
    except ImportError:
        return contextlib.nullcontext()
    return on_parse_error(refuse)


def _has_no_flag(field: dataclasses.Field[Any]) -> bool:
    """Whether it is a word by itself on the command line."""
    return "Positional" in str(field.type)


def _explain(event: ParseErrorEvent, argv: list[str], flags: Any) -> str:
    """What is wrong with a command line, from the event in which tyro says so.

    The events are tyro's hook for that, which it may still change: a test holds each of them to
    the line that it becomes.
    """
    from tyro import _errors as tyro

    if isinstance(event, tyro.UnrecognizedArgs):
        return _unknown(event.tokens, flags)
    if isinstance(event, tyro.MissingArgs):
        if event.unrecognized_tokens:  # --oot for --out: what is there tells more
            return _unknown(event.unrecognized_tokens, flags)
        missing = [each.arg for each in event.missing_arguments]
        missing.sort(key=lambda argument: argument.is_positional())
        names = (_name(argument) for argument in missing)
        return f"{' and '.join(names)} must be given"
    if isinstance(event, tyro.InvalidChoice):
        choices = ", ".join(event.choices)
        return f"{_name(event.argument)} must be one of {choices}, not {event.value!r}"
    if isinstance(event, tyro.BadValue):
        return f"{_name(event.argument)} needs a value"
    if isinstance(event, tyro.InstantiationFailure):
        if event.argument is None:  # all could be read, and the dataclass refused it
            return event.message
        return _not_a_value(event.argument, event.message, argv)
    return f"the options cannot be understood ({type(event).__name__})"


def _name(argument: ArgumentDefinition) -> str:
    """The flag as it is typed; for a word without one what it is, by the start of its help."""
    if not argument.is_positional():
        return argument.lowered.name_or_flags[0]
    text = argument.field.helptext
    return str(text() if callable(text) else text).partition(". ")[0].rstrip(".")


def _not_a_value(argument: ArgumentDefinition, reason: str, argv: list[str]) -> str:
    name, kinds = _name(argument), argument.lowered.metavar or ""
    number = "whole number" if "INT" in kinds else "number" if "FLOAT" in kinds else None
    if number is None:
        return f"{name}: {reason}"
    if argument.lowered.nargs == "*":
        return f"{name} must be {number}s"
    return f"{name} must be a {number}, not {value_of(name, argv)!r}"


def _unknown(words: list[str], flags: Any) -> str:
    """The first flag that is none, with the nearest that is one; else the word that is too many."""
    wrong = next((word for word in words if word.startswith("--")), None)
    if wrong is None:
        return f"{words[0]!r} is one word too many: it belongs to no option"
    known = list(_spellings(flags))
    meant = {f"--{flag.lstrip('-').rpartition('.')[2]}": flag for flag in reversed(known)}
    meant |= {flag: flag for flag in known}  # also without the section that a field is in
    close = difflib.get_close_matches(wrong.partition("=")[0], meant, n=1, cutoff=0.7)
    return f"there is no option {wrong}" + (f"; did you mean {meant[close[0]]}?" if close else "")


def _spellings(flags: Any, prefix: str = "--") -> Iterator[str]:
    """All flags as they are typed, from the dataclass of their defaults."""
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if _has_no_flag(field):
            continue
        if dataclasses.is_dataclass(value):
            yield from _spellings(value, f"{prefix}{_dashed(field.name)}.")
        else:
            yield f"{prefix}{'no-' if value is True else ''}{_dashed(field.name)}"


NAMES = frozenset(
    ("out", "data", "config", "books", "run", "runs", "inputs", "folder", "prompts", "text", "val")
) | {"init_from", "prompt_file"}
"""Fields that name files and folders. An empty one would mean the folder that one is in."""


def _refuse_empty_names(flags: Any) -> None:
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if field.name in NAMES and (value == "" or (isinstance(value, tuple) and "" in value)):
            name = field.name if _has_no_flag(field) else f"--{_dashed(field.name)}"
            raise UserError(f"{name} is empty; name a file or folder")


def long_forms(argv: list[str], short_forms: Mapping[str, str]) -> list[str]:
    """`argv` with one spelling for each flag: --steps and --train.steps, --a_b and --a-b."""
    words = []
    for word in argv:
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            flag = _dashed(flag)
        words.append(short_forms.get(flag, flag) + equals + value)
    return words


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def given(argv: list[str]) -> frozenset[str]:
    """The dotted names of all fields that flags set, to whatever value; `argv` has long forms."""
    flags = (word.partition("=")[0] for word in argv if word.startswith("--"))
    return frozenset(flag[2:].replace("-", "_") for flag in flags)


def value_of(flag: str, argv: list[str]) -> str | None:
    """The value of a flag on which the defaults of others depend, before all are parsed."""
    values = []
    for i, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            values.append(word.partition("=")[2])
        if word == flag:
            if i + 1 == len(argv):
                raise UserError(f"{flag} needs a value")
            values.append(argv[i + 1])
    if len(values) > 1:
        raise UserError(f"{flag} is given {len(values)} times; give it once")
    if values == [""]:
        raise UserError(f"{flag} is empty; give it a value, or leave it out")
    return values[0] if values else None
