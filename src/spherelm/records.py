"""JSON files with a checksum: sealed when written, verified when read.

An object of ours ends with its `seal`, the CRC-32 of all text before it: a file, or a line of one,
that has changed since is refused by name. Without a seal (files of others, and ours from before
there were seals) only the structure is checked. To change a file by hand, remove the seal.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.errors import UserError, or_say, shortened

SEAL = "seal"
_SEAL = re.compile(rb',\s*"seal": "([0-9a-f]{8})"\s*\}\s*\Z')
_LONGEST_SEAL = 64


class Damaged(UserError):
    """A file has changed since it was written."""


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a sealed object to `path` atomically."""
    durable.write_text(path, seal(json.dumps(value, indent=1)))


def line(value: Mapping[str, Any]) -> str:
    """A sealed object as one line."""
    return seal(json.dumps(value))


def seal(text: str) -> str:
    """The text of a non-empty JSON object with its seal added as the last member."""
    body = text.rstrip().removesuffix("}").rstrip()
    before, after = ("\n ", "\n") if "\n" in body else (" ", "")
    return f'{body},{before}"{SEAL}": "{zlib.crc32(body.encode()):08x}"{after}}}\n'


def read(path: Path) -> dict[str, Any]:
    """The object in the file `path`, without its seal."""
    with or_say(f"cannot read {path}"):
        return parse(path.read_bytes(), path)


def read_format(path: Path, format_name: str, version: int) -> dict[str, Any]:
    """The object in a file of ours, without its format and version, which must be those given."""
    values = read(path)
    if values.pop("format", None) != format_name:
        raise UserError(f"{path} is not a {format_name}")
    if (found := values.pop("version", None)) != version:
        raise UserError(
            f"{path} is of version {found!r}; this version of spherelm reads version {version} "
            f"of a {format_name}"
        )
    return values


def parse(content: bytes, where: object) -> dict[str, Any]:
    """The JSON object in `content`, without its seal, which must hold."""
    holds = seal_holds(content)
    if holds is False:
        raise damaged(where, "its checksum is not that of its text")
    values = parse_value(content, where)
    if not isinstance(values, dict):
        raise damaged(where, "it is not a JSON object")
    last = next(reversed(values), "")
    if holds is None and _misspelt_seal(last, values.get(last)):
        raise damaged(where, "its checksum is not readable")
    values.pop(SEAL, None)
    return values


def _misspelt_seal(name: str, value: object) -> bool:
    """Whether a member is a seal, or was one before one of its characters changed."""
    if name == SEAL:
        return True
    near = len(name) == len(SEAL) and sum(a != b for a, b in zip(name, SEAL, strict=True)) == 1
    return near and isinstance(value, str) and re.fullmatch("[0-9a-f]{8}", value) is not None


def seal_holds(content: bytes) -> bool | None:
    """Whether the seal matches the text; None if there is no seal."""
    match = _SEAL.search(content, max(0, len(content) - _LONGEST_SEAL))
    return None if match is None else zlib.crc32(content[: match.start()]) == int(match[1], 16)


def parse_value(content: bytes | str, where: object) -> Any:
    """Any JSON value; invalid or too deeply nested JSON, and too long numbers, are refused."""
    try:
        return json.loads(content)
    except RecursionError:
        raise damaged(where, "it is nested too deep") from None
    except ValueError:  # also for invalid UTF-8, and integers of thousands of digits
        raise damaged(where, "it is not a JSON object") from None


def field(
    values: Mapping[str, Any], name: str, kind: type | tuple[type, ...], where: object
) -> Any:
    """A member that must exist and be of this type; a boolean does not count as a number."""
    if name not in values:
        raise damaged(where, f"it has no {name!r}")
    value = values[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise damaged(where, f"its {name!r} cannot be {shortened(value, 60)}")
    return value


def beside(file: Path, name: Any) -> Path:
    """The path of the file `name`, as named in `file`, in the same folder.

    A folder may come from anywhere, so the content of its files is not trusted: a name read from
    one may only be that of a file beside it, not a path to anywhere else.
    """
    odd = not isinstance(name, str) or name in ("", ".", "..")
    if odd or any(c in '/\\:"<>|?*' or not c.isprintable() for c in name):
        raise damaged(file, f"{shortened(name)} is not the name of a file beside it")
    return file.parent / name


def step_number(file: Path, value: Any) -> int:
    """Check a number of steps read from `file`, since it becomes part of a folder's name."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**15:
        raise damaged(file, f"step must be a whole number from 0 on, not {shortened(value)}")
    return value


def damaged(where: object, why: str) -> Damaged:
    """The error for a file that has changed since it was written."""
    return Damaged(f"{where} is damaged: {why}")
