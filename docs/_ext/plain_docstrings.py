"""Docstrings as this project writes them, plain text with `code`, made ready for Sphinx.

A paragraph stays one, with its `names` as code, and with arrows that no browser breaks in two. What
is set out by spaces, a formula on a line of its own, a table, an example, is shown as it stands.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_CODE = re.compile(r"`+([^`]+)`+")
_SET_OUT = re.compile(r"\S {3,}\S")
_BULLET = re.compile(r"[-*] |\d+\. ")
_NAMED_TUPLE = re.compile(r"Alias for field number \d+")
"""What Python says of a field of which we say nothing."""


def _text(line: str) -> str:
    """One line of prose: code marked as code, nothing else taken for markup."""
    parts = _CODE.split(line)
    for i, part in enumerate(parts):
        plain = re.sub(r"([*|_\\])", r"\\\1", part.replace("->", "→"))
        parts[i] = f"``{part}``" if i % 2 else plain
    for i in range(1, len(parts), 2):  # markup must end where a word does
        if parts[i + 1][:1].isalnum():
            parts[i + 1] = "\\ " + parts[i + 1]
        if parts[i - 1][-1:].isalnum():
            parts[i - 1] += "\\ "
    return "".join(parts)


def _block(lines: list[str]) -> list[str]:
    set_out = all(line.startswith("  ") for line in lines) or any(map(_SET_OUT.search, lines))
    if set_out and not _BULLET.match(lines[0]):
        return [".. code-block:: text", "", *(f"   {line}" for line in lines), ""]
    if not _BULLET.match(lines[0]):
        return [_text(" ".join(line.strip() for line in lines)), ""]
    items: list[str] = []
    for line in lines:
        if _BULLET.match(line):
            items.append(line)
        else:
            items[-1] += f" {line.strip()}"
    return [row for item in items for row in (item[:2] + _text(item[2:]), "")]


def ready(lines: list[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    result: list[str] = []
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip() and not _NAMED_TUPLE.fullmatch(line):
            block.append(line.rstrip())
        elif block:
            result += _block(block)
            block = []
    return result


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = ready(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
