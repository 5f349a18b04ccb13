"""The help page of a verb, from the dataclass of its flags and the defaults in force.

tyro, which parses the flags, could print one, too. Ours puts first what people use first, has both
forms of a switch on one line, shows a default only where it says something, lists sections of the
same kind once, and wraps lines to the terminal.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from spherelm import console
from spherelm.flags.fields import dashed, docs, flag_of, in_order, is_positional, kinds, word_of

Entry = tuple[str, str]
"""What is typed, and what it is for."""


def page(flags: Any, verb: str, short_forms: Mapping[str, str], required: frozenset[str]) -> str:
    """The help page of `spherelm VERB`; `flags` holds the defaults of all but `required` fields."""
    kind = type(flags)
    words, must, may = [], [], []
    for field in in_order(kind):
        if is_positional(field):
            word = word_of(kind, field.name)
            typed = word if field.name in required else f"[{word}]"
            words.append((typed, docs(kind)[field.name]))
        elif field.name in required:
            must.append(_entry(flags, field.name, note="required"))
        elif not dataclasses.is_dataclass(getattr(flags, field.name)):
            may.append(_entry(flags, field.name))
    usage = ["usage: spherelm", verb, *(word for word, _ in words), *(typed for typed, _ in must)]
    short = [_short(flags, short, long) for short, long in short_forms.items()]
    blocks = [
        console.paragraph(" ".join([*usage, "[options]"])),
        _description(kind),
        *([console.entries("arguments:", words)] if words else []),
        console.entries("options:", [*must, *short, *may, ("-h, --help", "Show this page.")]),
        *_sections(flags, "--"),
    ]
    return "\n\n".join(blocks)


def _description(flags: type[Any]) -> str:
    """The docstring of the flags: paragraphs, and commands (indented) as they are typed."""
    blocks = (inspect.getdoc(flags) or "").split("\n\n")
    return "\n\n".join(
        "\n".join(console.command(line.strip()) for line in block.split("\n"))
        if block.startswith(("    ", "spherelm "))
        else console.paragraph(block)
        for block in blocks
    )


def _entry(flags: Any, name: str, prefix: str = "--", note: str | None = None) -> Entry:
    """A flag with its value, and its help.

    A switch that is on by default, or is inside a section, is shown as --[no-]NAME.
    """
    kind, value, in_section = kinds(type(flags))[name], getattr(flags, name), prefix != "--"
    both = kind.of is bool and (value is True or in_section)
    flag = f"{prefix}[no-]{dashed(name)}" if both else flag_of(name, prefix)
    note = _default(value, in_section) if note is None else note
    return f"{flag} {kind.value(name)}".strip(), _help(type(flags), name, note)


def _short(flags: Any, short: str, long: str) -> Entry:
    """The entry of a short form, with the help of the section's field that it stands for."""
    section, _, name = long.removeprefix("--").replace("-", "_").partition(".")
    fields = getattr(flags, section)
    value = kinds(type(fields))[name].value(name)
    return f"{short} {value}", _help(type(fields), name, _default(getattr(fields, name)))


def _help(flags: type[Any], name: str, note: str) -> str:
    """The field's docstring, followed by a note in brackets such as the default."""
    kind, text = kinds(flags)[name], docs(flags).get(name, "")
    if text.startswith("Whether to "):  # the help of a switch is in the imperative
        text = text[11].upper() + text[12:]
    if kind.choices and kind.value(name).startswith("WHICH"):
        text += f" One of {', '.join(kind.choices)}."
    return f"{text} ({note})" if note else text


def _default(value: Any, in_section: bool = False) -> str:
    """The note on a default; empty for an unset value or a plain switch that is off."""
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return f"default: {'on' if value else 'off'}" if value or in_section else ""
    return f"default: {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _sections(flags: Any, prefix: str) -> Iterator[str]:
    """A block for each section of `flags` and its subsections; those of one type share a block."""
    alike: dict[type[Any], list[str]] = {}
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if dataclasses.is_dataclass(value):
            alike.setdefault(type(value), []).append(field.name)
    for kind, names in alike.items():
        if len(names) > 1:
            yield _alike(flags, names, prefix)
            continue
        section, inside = getattr(flags, names[0]), f"{prefix}{dashed(names[0])}."
        own = [
            _entry(section, field.name, inside)
            for field in dataclasses.fields(section)
            if not dataclasses.is_dataclass(getattr(section, field.name))
        ]
        yield console.entries(f"{names[0]}: {_first_paragraph(kind)}", own)
        yield from _sections(section, inside)


def _alike(flags: Any, names: list[str], prefix: str) -> str:
    """One block for sections of one type, such as a model's scales: their names, then fields."""
    kind = type(getattr(flags, names[0]))
    fields = []
    for field in dataclasses.fields(kind):
        owners: dict[str, list[str]] = {}
        for name in names:
            default = _default(getattr(getattr(flags, name), field.name))
            owners.setdefault(default, []).append(dashed(name))
        notes = [
            default if len(having) == len(names) else f"{default} for {' and '.join(having)}"
            for default, having in owners.items()
            if default
        ]
        value = kinds(kind)[field.name].value(field.name)
        typed = f"{prefix}NAME.{dashed(field.name)} {value}"
        fields.append((typed, _help(kind, field.name, "; ".join(notes))))
    title = f"{prefix.removeprefix('--')}NAME: {_first_paragraph(kind)} NAME is one of"
    named = [(dashed(name), docs(type(flags)).get(name, "")) for name in names]
    return f"{console.entries(title, named)}\n{console.entries('', fields)}"


def _first_paragraph(kind: type[Any]) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0]
