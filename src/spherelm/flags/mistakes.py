"""Error messages for the command line: one line for each error event of the parser.

All use of tyro's private API is in this file. Its error events are meant for this purpose but may
still change, so a test checks the message for each of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from spherelm.flags.fields import is_positional, spellings, word_of
from spherelm.flags.words import value_of

if TYPE_CHECKING:
    from tyro._arguments import ArgumentDefinition
    from tyro._errors import ParseErrorEvent


ELSEWHERE = {
    "--out": ("output", "output-dir", "out-dir", "save-dir"),
    "--lr": ("learning-rate", "max-lr"),
    "--steps": ("epochs", "iters", "max-iters", "max-steps", "num-steps"),
    "--context": ("block-size", "seq-len", "seq-length", "max-seq-len"),
    "--model.d-model": ("n-embd", "dim", "hidden-size", "hidden-dim"),
    "--max-new-tokens": ("max-length", "length", "n-tokens"),
    "--preset": ("model", "size"),
}
"""The names that other programs give to our options."""
WORDS = ("run", "model", "checkpoint", "ckpt", "folder", "path", "file", "input")
"""Options of other programs that are positional arguments here."""


def refusing(refuse: Callable[[ParseErrorEvent], None]) -> AbstractContextManager[None]:
    """Pass parse errors to `refuse`; a tyro without this hook prints its own messages."""
    try:
        from tyro._errors import on_parse_error
    except ImportError:
        return contextlib.nullcontext()
    return on_parse_error(refuse)


def explain(
    event: ParseErrorEvent,
    argv: list[str],
    flags: Any,
    short_forms: Iterable[str] = (),
    meant: Callable[[str], str | None] = lambda word: None,
) -> str:
    """What is wrong with a command line, from tyro's error event.

    `meant` guesses which option a stray word was meant as, or returns None.
    """
    from tyro import _errors as tyro

    known = [*short_forms, *spellings(flags)]
    if isinstance(event, tyro.UnrecognizedArgs):
        return _unknown(event.tokens, argv, known, flags, meant)
    if isinstance(event, tyro.MissingArgs):
        if event.unrecognized_tokens:  # --oot for --out: the misspelling says more
            return _unknown(event.unrecognized_tokens, argv, known, flags, meant)
        missing = [each.arg for each in event.missing_arguments]
        missing.sort(key=lambda argument: argument.is_positional())
        names = (_name(argument, flags) for argument in missing)
        return f"{' and '.join(names)} must be given"
    if isinstance(event, tyro.InvalidChoice):
        choices = ", ".join(event.choices)
        return f"{_name(event.argument, flags)} must be one of {choices}, not {event.value!r}"
    if isinstance(event, tyro.BadValue):
        strange = [w for w in argv if w.startswith("--") and w.partition("=")[0] not in known]
        if event.argument.is_positional() and strange:  # an unknown flag took the word as its value
            return _unknown(strange, argv, known, flags, meant)
        choices = ", ".join(event.argument.lowered.choices or ())
        return f"{_name(event.argument, flags)} needs a value" + (f": {choices}" if choices else "")
    if isinstance(event, tyro.InstantiationFailure):
        if event.argument is None:  # all values parsed, but the dataclass rejected them
            return event.message
        return _not_a_value(_name(event.argument, flags), event.argument, event.message, argv)
    return f"the options cannot be understood ({type(event).__name__})"


def _name(argument: ArgumentDefinition, flags: Any) -> str:
    """The flag as it is typed, or a positional as the help calls it."""
    if not argument.is_positional():
        return argument.lowered.name_or_flags[0]
    return word_of(type(flags), argument.field.intern_name)


def _not_a_value(name: str, argument: ArgumentDefinition, reason: str, argv: list[str]) -> str:
    kinds = argument.lowered.metavar or ""
    number = "whole number" if "INT" in kinds else "number" if "FLOAT" in kinds else None
    if number is None:
        return f"{name}: {reason}"
    if argument.lowered.nargs == "*":
        return f"{name} must be {number}s"
    return f"{name} must be a {number}, not {value_of(name, argv)!r}"


def _unknown(
    words: list[str],
    argv: list[str],
    known: list[str],
    flags: Any,
    meant: Callable[[str], str | None],
) -> str:
    """The first unknown flag, with the nearest known one; if all are known, the stray word."""
    wrong = next((word for word in words if word.startswith("--")), None)
    if wrong is None:
        switch = _switch_before(words[0], argv, known)
        if switch is not None:
            off = words[0].lower() in ("false", "off", "no", "0")
            hint = f"did you mean {_opposite(switch)}?" if off else "leave that out"
            return f"{switch} takes no value, not {words[0]!r}; {hint}"
        hint = f"; did you mean {as_option}?" if (as_option := meant(words[0])) else ""
        return f"{words[0]!r} is one word too many: it belongs to no option{hint}"
    wrong_name = wrong.partition("=")[0]
    close = _close(wrong_name, known)
    word = next((f.name for f in dataclasses.fields(flags) if is_positional(f)), None)
    if close:
        hint = f"; did you mean {close}?"
    elif word is not None and wrong_name.removeprefix("--") in WORDS:
        hint = f"; {word_of(type(flags), word)} is given by itself, without one"
    else:
        hint = ""
    return f"there is no option {wrong}{hint}"


def _close(wrong: str, known: list[str]) -> str:
    """The option that an unknown flag was probably meant as, or a few of them; empty if none is
    close.

    Where several options share a last name the first wins, so short forms have priority.
    """
    elsewhere = [ours for ours, names in ELSEWHERE.items() if wrong.removeprefix("--") in names]
    if elsewhere and elsewhere[0] in known:
        return elsewhere[0]
    bare = {f"--{flag.lstrip('-').rpartition('.')[2]}": flag for flag in reversed(known)}
    bare |= {flag: flag for flag in known}  # with its section, and above without it
    if close := difflib.get_close_matches(wrong, bare, n=1, cutoff=0.7):
        return bare[close[0]]
    return " or ".join(flag for flag in known if flag.endswith(wrong.removeprefix("-")))


def _switch_before(word: str, argv: list[str], known: list[str]) -> str | None:
    """The switch that was given a stray word as a value: --switch WORD or --switch=WORD."""
    pairs = [*itertools.pairwise(argv), *(each.split("=", 1) for each in argv if "=" in each)]
    before = next((flag for flag, after in pairs if after == word), "")
    return before if before in known and _opposite(before) in known else None


def _opposite(switch: str) -> str:
    """The other form of a switch."""
    section, dot, name = switch.removeprefix("--").rpartition(".")
    other = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
    return f"--{section}{dot}{other}"
