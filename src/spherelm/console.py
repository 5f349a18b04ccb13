"""Everything that prints goes through here: text that fits the terminal, tables, characters that
it can show, and readable numbers."""

from __future__ import annotations

import codecs
import itertools
import json
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 100
"""The widest text, in columns, that is still easy to read."""
SIDE_BY_SIDE = 60
"""From this width, in columns, a flag and its help stand side by side."""

LETTERS = {
    "·": "*", "×": "x", "−": "-", "–": "-", "—": "-", "→": "->", "←": "<-", "…": "...", "‖": "|",
    "≤": "<=", "≥": ">=", "≈": "~", "±": "+-", "°": " degrees", "√": "sqrt", "∞": "inf", "ᵀ": "^T",
    "‘": "'", "’": "'", "“": '"', "”": '"', "•": "*", "█": "#", "━": "-", "╸": "-", "╺": "-",
    "α": "alpha", "β": "beta", "ν": "nu", "ρ": "rho", "σ": "sigma", "\u00a0": " ", "²": "^2",
}  # fmt: skip
"""Replacements for characters that the output's encoding lacks."""


def plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Error handler for encoding: replaces by `LETTERS`, or else by a Python escape."""
    assert isinstance(error, UnicodeEncodeError)
    cannot = error.object[error.start : error.end]
    shown = (LETTERS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in cannot)
    return "".join(shown), error.end


PLAIN = "spherelm.plain"
"""The name of this error handler, for a stream's `errors`."""
codecs.register_error(PLAIN, plain_letters)


def text_width() -> int:
    """Columns for text: those of the terminal, or $COLUMNS, but at most `WIDEST`."""
    return max(20, min(WIDEST, shutil.get_terminal_size().columns))


def paragraph(text: str, indent: int = 0) -> str:
    """Text wrapped to the terminal, ignoring the line breaks it was written with."""
    return textwrap.fill(
        " ".join(text.split()),
        text_width(),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def command(line: str) -> str:
    """A command to type, indented; continued with backslashes if too long for the terminal."""
    width = text_width() - 2  # a space and the backslash
    lines = textwrap.wrap(
        line,
        width,
        initial_indent="    ",
        subsequent_indent="        ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return " \\\n".join(lines)


def entries(title: str, items: Sequence[tuple[str, str]]) -> str:
    """Words and their meanings: in two columns, or one below the other on a narrow terminal."""
    width = text_width()
    beside = min(30, max((len(word) for word, _ in items), default=0) + 4)
    indent = beside if width >= SIDE_BY_SIDE else 6
    lines = [paragraph(title)] if title else []
    for word, meaning in items:
        explained = paragraph(meaning, indent)
        head = f"  {word}"
        if width >= SIDE_BY_SIDE and len(head) + 2 <= indent:
            lines.append(f"{head:<{indent}}{explained[indent:]}")
        else:
            lines += [line for line in (head.rstrip(), explained) if line]
    return "\n".join(lines)


def open_console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr. Strings are printed as they are; for style, pass a
    `rich.text.Text`."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # the current BrokenPipeError; rich would exit with status 1 instead

    return Plain(stderr=stderr, markup=False, highlight=False, emoji=False)


def print_table(
    title: str | None,
    rows: Iterable[Sequence[str]],
    head: Sequence[str] | None = None,
    words: Collection[str] = (),
    caption: str | None = None,
) -> None:
    """Print a table: names in the first column, right-aligned numbers in the others.

    `words` names the columns that hold words instead of numbers. Words wrap to fit the terminal,
    numbers never do: if the table is too wide, it loses its frames or becomes a list, with the
    columns of each row one below the other.
    """
    from rich.table import Table
    from rich.text import Text

    console, rows = open_console(), list(rows)
    least = _least_widths(rows, head or ("", ""), words)
    if head is not None and sum(least) + 3 * len(least) >= console.width:
        bare = sum(least) + GAP * (len(least) - 1) <= console.width
        lines = _columns(rows, head, words, least, console.width) if bare else _list(rows, head)
        console.print("\n".join(filter(None, [title, *lines, caption])))
        return
    table = Table(
        title=None if title is None else Text(title, "bold"),
        caption=None if caption is None else Text(caption),
        show_header=head is not None,
    )
    widths = [None, None] if head is None else _framed_widths(rows, head, least, console.width)
    for i, (name, width) in enumerate(zip(head or ("", ""), widths, strict=True)):
        side: Literal["left", "right"] = "left" if i == 0 or name in words else "right"
        table.add_column(
            name,
            style="bold" if i == 0 else "none",
            justify=side,
            width=width,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    console.print(table)


GAP = 2
"""Spaces between the columns of a table without frames."""
NARROWEST_NAME = 16
"""The narrowest width, in columns, to which names and words in a table may be wrapped."""


def _least_widths(
    rows: Sequence[Sequence[str]], head: Sequence[str], words: Collection[str]
) -> list[int]:
    """The least width of each column: numbers stay whole; names, words and heads may wrap."""
    least = []
    for column, name in enumerate(head):
        longest = max((len(row[column]) for row in rows), default=0)
        may_break = column == 0 or name in words
        title = max((len(word) for word in name.split()), default=0)
        least.append(max(1, title, min(longest, NARROWEST_NAME) if may_break else longest))
    return least


def _framed_widths(
    rows: Sequence[Sequence[str]], head: Sequence[str], least: Sequence[int], width: int
) -> list[int]:
    """Column widths of a framed table: as wide as the cells, the widest narrowed until all fit.

    rich would narrow columns without regard to what each needs, and cut off what is too wide.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in zip(head, *rows, strict=True)]
    while sum(widths) + 3 * len(widths) >= width:
        may = [i for i, (now, need) in enumerate(zip(widths, least, strict=True)) if now > need]
        widths[max(may, key=widths.__getitem__)] -= 1
    return widths


def _columns(
    rows: Sequence[Sequence[str]],
    head: Sequence[str],
    words: Collection[str],
    least: Sequence[int],
    width: int,
) -> list[str]:
    """The lines of a table without frames; spare width goes to the first column."""
    longest = max(len(row[0]) for row in (head, *rows))
    spare = width - sum(least) - GAP * (len(least) - 1)
    widths = [min(longest, least[0] + spare), *least[1:]]
    lines = []
    for row in (head, *rows):
        cells = [textwrap.wrap(cell, room) or [""] for cell, room in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            shown = [
                f"{part:<{room}}" if i == 0 or head[i] in words else f"{part:>{room}}"
                for i, (part, room) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append((" " * GAP).join(shown).rstrip())
    return lines


def _list(rows: Sequence[Sequence[str]], head: Sequence[str]) -> list[str]:
    """The lines of a table as a list: row after row, each column on its own line."""
    lines = []
    for row in rows:
        named = zip(head[1:], row[1:], strict=True)
        lines += [row[0], *(f"  {name}: {cell}" for name, cell in named if cell)]
    return lines


def show(result: Mapping[str, object], as_json: bool, in_words: Callable[[], None]) -> int:
    """Print a verb's result, as one JSON object or in words; returns the exit status 0."""
    if as_json:
        print(json.dumps(result))
    else:
        in_words()
    return 0


def format_count(value: float) -> str:
    """1234567 -> 1.23M"""
    shown = _three_digits(value)
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if shown >= limit:
            return f"{shown / limit:.3g}{unit}"
    return f"{shown:.3g}"


def format_context(tokens: int) -> str:
    """4096 -> 4k"""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


def counted(number: int, thing: str) -> str:
    """1 run, 24 runs"""
    return f"{number:,} {thing}" + "s" * (number != 1)


def format_flops(value: float) -> str:
    """7280000 -> 7.28 MFLOPs"""
    shown = _three_digits(value)
    for limit, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if shown >= limit:
            return f"{shown / limit:.3g} {unit}FLOPs"
    return f"{value:,.0f} FLOPs"


def _three_digits(value: float) -> float:
    """Round to three digits before a unit is chosen, so that 999,700 is 1M and not 1e+03k."""
    return float(f"{value:.3g}")


def format_seconds(seconds: float) -> str:
    """3725 -> 1h02m"""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest}s"
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 48 else f"{hours / 24:.1f} days"
