"""Configs from and to dictionaries and TOML files, and dotted overrides, checked key by key.

A field that is unset (None) is left out of the TOML; reading the file back gives the same config.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
import types
import typing
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from spherelm.errors import UserError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

C = TypeVar("C")
_SEAL = re.compile(rb"# seal ([0-9a-f]{8})[^\n]*\n?\Z")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as nested dictionaries, unset fields left out."""
    result: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            result[f.name] = to_dict(value)
        elif value is not None:
            result[f.name] = value
    return result


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries, each with its dotted name."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def from_dict(cls: type[C], values: Any, file: object = None) -> C:
    """Build the config `cls` from nested dictionaries, read from `file`; refuse unknown keys."""
    try:
        return merge(cls(), values)
    except UserError as error:
        if file is None:
            raise
        raise UserError(f"{file} was written by another version of spherelm: {error}") from None


def merge(config: C, values: Mapping[str, Any], where: str = "") -> C:
    """`config` with the given fields replaced; `where` is the dotted path for messages."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where.rstrip('.')} must be a table of fields, not {values!r}")
    hints = typing.get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in hints:
            raise UserError(f"unknown key {where}{key}; {_meant(config, key, where)}")
        current = getattr(config, key)
        if dataclasses.is_dataclass(current):
            changes[key] = merge(current, value, f"{where}{key}.")
        else:
            changes[key] = _coerce(hints[key], value)
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def _meant(config: Any, key: str, where: str) -> str:
    """A suggestion for an unknown key: the one section that has it, or a similar key."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    inside = [name for name, of in values.items() if key in getattr(of, "__dataclass_fields__", ())]
    if len(inside) == 1:
        return f"did you mean {where}{inside[0]}.{key}?"
    return nearest(key, values)


def override(config: C, dotted: Mapping[str, Any]) -> C:
    """`config` with dotted fields replaced, as in {"model.s_z.init": 10}."""
    nested: dict[str, Any] = {}
    for path, value in dotted.items():
        *tables, leaf = path.split(".")
        table = nested
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise UserError(f"{path} cannot be set beside {name} = {table!r}")
        table[leaf] = value
    return merge(config, nested)


def _coerce(hint: Any, value: Any) -> Any:
    """Convert an integer given for a float; everything else is left to validation."""
    wants = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in wants and isinstance(value, int) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # too large for a float: validation says so
            return float(value)
    return value


def read_toml(path: str | Path, base: C, sealed: bool = False) -> C:
    """`base` with the fields that a TOML file gives; with `sealed`, a seal in it must hold."""
    if not isinstance(path, (str, Path)):
        raise UserError(f"a config is named by its file, not {path!r}")
    values = toml_values(path, sealed)
    try:
        return merge(base, values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def toml_values(path: str | Path, sealed: bool = False) -> dict[str, Any]:
    """The tables and values of a TOML file."""
    try:
        content = Path(path).read_bytes()
        match = _SEAL.search(content) if sealed else None
        if match is not None and zlib.crc32(content[: match.start()]) != int(match[1], 16):
            raise UserError(
                f"{path} is damaged: its checksum is not that of its text "
                "(if it was changed on purpose, remove its last line)"
            )
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors write a byte-order mark
    except UserError:
        raise
    except OSError as error:
        of_run = Path(path) / "config.toml"
        hint = f"; did you mean {of_run}?" if of_run.is_file() else ""
        raise UserError(f"cannot read the config {path}: {error.strerror}{hint}") from None
    except RecursionError:
        raise UserError(f"{path} is not TOML: it is nested too deep") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not TOML, which is UTF-8 text: {error.reason} at byte {error.start}"
        ) from None
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from None


def seal_toml(text: str) -> str:
    """`text` with a checksum as its last line, which shows if any of it was changed."""
    seal = f"{zlib.crc32(text.encode()):08x}"
    return f"{text}# seal {seal} of all above: remove this line when you change something\n"


def to_toml(config: Any) -> str:
    """The config as TOML; `read_toml` reads back the same config."""
    lines: list[str] = []
    _write_table(lines, "", to_dict(config))
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(lines: list[str], name: str, table: Mapping[str, Any]) -> None:
    values = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    if name and values:
        lines += ["", f"[{name}]"]
    lines += [f"{key} = {_toml_value(value)}" for key, value in values.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(lines, f"{name}.{key}" if name else key, value)


def _toml_value(value: Any) -> str:
    """A scalar: TOML spells strings, numbers and booleans like JSON, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
