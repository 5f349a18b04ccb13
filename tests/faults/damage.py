"""Ways to damage a file: a random bit, or what hurts most in a file of its kind."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[bytes, random.Random], bytes | None]
"""The damaged content; None removes the file."""


def flip_a_bit(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def change_a_byte(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    other = (content[at] + draw.randrange(1, 256)) % 256
    return content[:at] + bytes((other,)) + content[at + 1 :]


def change_a_digit(content: bytes, draw: random.Random) -> bytes:
    """The file stays what it is, and says something else."""
    digits = [match.start() for match in re.finditer(rb"\d", content)]
    if not digits:
        return flip_a_bit(content, draw)
    at = draw.choice(digits)
    other = b"0123456789"[(content[at] - ord("0") + draw.randrange(1, 10)) % 10]
    return content[:at] + bytes((other,)) + content[at + 1 :]


def change_a_letter(content: bytes, draw: random.Random) -> bytes:
    """Such as that of a name."""
    letters = [match.start() for match in re.finditer(rb"[a-z]", content)]
    if not letters:
        return flip_a_bit(content, draw)
    at = draw.choice(letters)
    other = ord("a") + (content[at] - ord("a") + draw.randrange(1, 26)) % 26
    return content[:at] + bytes((other,)) + content[at + 1 :]


def drop_a_line(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    return b"".join(lines)


def double_a_line(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    return b"".join([*lines[:at], lines[at], *lines[at:]])


def cut_short(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def with_more(content: bytes, draw: random.Random) -> bytes:
    return content + draw.randbytes(draw.randrange(1, 30))


def zeros(content: bytes, draw: random.Random) -> bytes:
    """What some file systems leave of a file after a power cut."""
    return bytes(len(content))


def another_value(content: bytes, draw: random.Random) -> bytes:
    """JSON, but not what it should be."""
    values = (b"", b"{}", b"[]", b"7", b"null", b'{"files": []}', b"[" * 100_000, b"9" * 5000)
    return draw.choice(values)


def gone(content: bytes, draw: random.Random) -> None:
    return None


RANDOM: tuple[Damage, ...] = (flip_a_bit, change_a_byte)
AIMED: tuple[Damage, ...] = (
    *(change_a_digit, change_a_letter, drop_a_line, double_a_line, cut_short, with_more),
    *(zeros, another_value, gone),
)


def hurt(folder: Path, draw: random.Random, aimed: bool) -> tuple[Path, str]:
    """Damage one file of a folder, every one as likely; which, and how."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    victim = draw.choice(files)
    before = victim.read_bytes()
    while True:
        damage = draw.choice(AIMED if aimed else RANDOM)
        after = damage(before, draw)
        if after is None:
            victim.unlink()
        elif after != before:
            victim.write_bytes(after)
        else:
            continue
        return victim, damage.__name__  # type: ignore[attr-defined]
