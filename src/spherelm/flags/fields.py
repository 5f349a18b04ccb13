"""How the fields of a flags dataclass are spelled on the command line and in its help."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

VALUES = {
    "FOLDER": ("out", "data", "path", "folder", "books", "results", "records", "tasks_dir"),
    "FILE": ("config", "prompts", "prompt_file", "text", "inputs", "val"),
    "RUN": ("run", "runs", "models", "init_from"),
    "PRESET": ("preset",),
    "SIZE": ("size", "sizes"),
    "TEXT": ("prompt", "stop"),
    "NAME": ("tokenizer", "field", "wandb_project", "dtype"),
    "DEVICE": ("device",),
    "TASK,TASK": ("tasks",),
    "PATTERN": ("only",),
    "TOKEN": ("end_of_document",),
}
"""The placeholder in the help for a text value, by field; other fields show their own name."""

PATHS = frozenset(name for value in ("FOLDER", "FILE", "RUN") for name in VALUES[value]) - {
    "path",
    "results",
}
"""Fields that name files and folders. An empty one would mean the working directory."""

MOST_CHOICES = 24
"""Characters of choices to show right after a flag; a longer list goes into its help."""


def dashed(name: str) -> str:
    """A field's name as it is typed."""
    return name.replace("_", "-")


def is_positional(field: dataclasses.Field[Any]) -> bool:
    """Whether the field is given as a bare word, without a flag."""
    return "Positional" in str(field.type)


def word_of(flags: type[Any], name: str) -> str:
    """What the help calls a positional: its value's placeholder, or its name if it has choices."""
    kind = kinds(flags)[name]
    return name.upper() if kind.choices else kind.value(name)


def flag_of(name: str, prefix: str = "--", off: bool = False) -> str:
    """The flag of a field in the section named by `prefix`; `off` gives the form with "no-"."""
    return f"{prefix}{'no-' if off else ''}{dashed(name)}"


def in_order(flags: type[Any]) -> list[dataclasses.Field[Any]]:
    """All fields in the order of the help: a verb's own, those it inherits, and --json last."""

    def place(field: dataclasses.Field[Any]) -> int:
        owners = (field.name in vars(kind).get("__annotations__", ()) for kind in flags.__mro__)
        return len(flags.__mro__) if field.name == "json" else list(owners).index(True)

    return sorted(dataclasses.fields(flags), key=place)


def spellings(flags: Any, prefix: str = "--") -> Iterator[str]:
    """All flags as they are typed; `flags` is an instance of the dataclass."""
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if is_positional(field):
            continue
        if dataclasses.is_dataclass(value):
            yield from spellings(value, f"{prefix}{dashed(field.name)}.")
        else:
            yield flag_of(field.name, prefix)
            if isinstance(value, bool):
                yield flag_of(field.name, prefix, off=True)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Which values a field takes."""

    of: Any
    """The type of one value."""
    many: bool
    """Whether it takes any number of values."""

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(map(str, get_args(self.of))) if get_origin(self.of) is Literal else ()

    def value(self, name: str) -> str:
        """The placeholder for the value of the field `name`, with dots if it takes several; empty
        for a switch."""
        if self.of is bool:
            return ""
        choices = "|".join(self.choices)
        if choices:
            word = choices if len(choices) <= MOST_CHOICES else "WHICH"
        elif self.of in (int, float):
            word = "N" if self.of is int else "X"
        else:
            own = dashed(name).upper()
            word = next((value for value, names in VALUES.items() if name in names), own)
        return f"{word}..." if self.many else word


def kind_of(annotation: Any) -> Kind:
    """The kind of a field from its annotation: `X | None`, `Annotated[X, ...]`, `tuple[X, ...]`."""
    many = False
    while (origin := get_origin(annotation)) in (Annotated, Union, UnionType, tuple):
        many = many or origin is tuple
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    return Kind(annotation, many)


def kinds(flags: type[Any]) -> dict[str, Kind]:
    """The kind of every field."""
    return _kinds(flags)  # type: ignore[arg-type]


def docs(flags: type[Any]) -> dict[str, str]:
    """The docstring under every field, on one line, from the source: Python does not keep them."""
    return _docs(flags)  # type: ignore[arg-type]


@functools.cache
def _kinds(flags: Any) -> dict[str, Kind]:
    hints = get_type_hints(flags, include_extras=True)
    return {field.name: kind_of(hints[field.name]) for field in dataclasses.fields(flags)}


@functools.cache
def _docs(flags: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    mro: tuple[type[Any], ...] = flags.__mro__
    for kind in reversed(mro):
        if "__dataclass_fields__" not in vars(kind):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        assert isinstance(tree.body[0], ast.ClassDef)
        for field, after in itertools.pairwise(tree.body[0].body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match after:
                    case ast.Expr(ast.Constant(str(text))):
                        found[field.target.id] = " ".join(text.split())
    return found
