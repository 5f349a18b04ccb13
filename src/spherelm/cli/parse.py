"""Flags from a frozen dataclass: tyro reads them and makes the help, mistakes end in one line."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import TypeVar

from spherelm.errors import UserError

A = TypeVar("A")


def parse(flags: type[A], argv: list[str], verb: str, default: A | None = None) -> A:
    """Parse `argv` into the dataclass `flags`; its field docstrings are the help."""
    import tyro

    def read(words: list[str]) -> A:
        shape = (tyro.conf.FlagCreatePairsOff,)
        prog = f"spherelm {verb}"
        if default is None:
            return tyro.cli(flags, args=words, prog=prog, config=shape)
        return tyro.cli(flags, args=words, prog=prog, config=shape, default=default)

    if {"-h", "--help"} & set(argv):
        return read(argv)  # prints the help and exits
    complaint = io.StringIO()
    try:
        with _captured(complaint):
            values = read(argv)
        _refuse_empty_names(values)
        return values
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
    message, meant = _explain(complaint.getvalue())
    if meant is None and "=" in message:  # tyro looks for what --flag=value meant as one word
        complaint = io.StringIO()
        with contextlib.suppress(SystemExit), _captured(complaint):
            read(_divided(argv))
        _, meant = _explain(complaint.getvalue())
    message = message.removeprefix(f"{flags.__name__}: ")
    hint = "" if meant is None else f"; did you mean {meant}?"
    raise UserError(f"{message}{hint} (spherelm {verb} --help lists the options)")


NAMES = frozenset(
    ("out", "data", "config", "books", "run", "runs", "inputs", "folder", "prompts", "text", "val")
)
"""Fields that name files and folders. An empty one would mean the folder that one is in."""


def _refuse_empty_names(flags: object) -> None:
    for name in NAMES & vars(flags).keys():
        value = getattr(flags, name)
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise UserError(f"{name} is empty; name a file or folder")


def long_forms(argv: list[str], short_forms: Mapping[str, str]) -> list[str]:
    """`argv` with short flags, such as --steps, spelt out, such as --train.steps."""
    words = []
    for word in argv:
        flag, equals, value = word.partition("=")
        words.append(short_forms.get(flag, flag) + equals + value)
    return words


def value_of(flag: str, argv: list[str]) -> str | None:
    """The value given to a flag on which the defaults of others depend, before all are parsed."""
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


def _divided(argv: list[str]) -> list[str]:
    """`argv` with --flag=value as two words."""
    return [
        part for word in argv for part in (word.split("=", 1) if word.startswith("--") else [word])
    ]


@contextlib.contextmanager
def _captured(complaint: io.StringIO) -> Iterator[None]:
    """Collect what tyro complains about; where it draws its usual frames, nobody looks."""
    nothing = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        _wide_terminal(),
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(complaint),
    ):
        yield


@contextlib.contextmanager
def _wide_terminal() -> Iterator[None]:
    """Keep tyro from wrapping its messages."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _explain(complaint: str) -> tuple[str, str | None]:
    """tyro's framed message as one line, and the option it thinks was meant."""
    rows = [row.strip("│ ").strip() for row in complaint.splitlines() if row.startswith("│")]
    sections: list[list[str]] = [[]]
    for row in rows:
        if row and set(row) == {"─"}:
            sections.append([])
        elif row:
            sections[-1].append(row)
    sections = [section for section in sections if section]
    if not sections:
        return "", None
    unknown = [section for section in sections if section[0].startswith("Unrecognized")]
    message = " ".join((unknown or sections)[0]).removeprefix("Error parsing ")
    if message.startswith("Missing from"):
        missing = sections[0][1:]  # each has its name in one row and its help in the next
        names = [row.split()[0] for row in missing if row.startswith("--")]
        helps = itertools.pairwise(missing)
        names += [text.split(".")[0] for row, text in helps if row.isupper()]  # has no name: a word
        return f"{' and '.join(names)} must be given", None
    for section in sections:
        if section[0].startswith("Perhaps you meant"):
            return message, section[1].split()[0]
    return message, None
