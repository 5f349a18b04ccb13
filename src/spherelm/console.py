"""The one way to print tables and bars: names are shown as they are, never read as markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console


def open_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console for stdout or stderr. Its texts are plain; for style give `rich.text.Text`."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError in hand, of which rich would make an exit with status 1

    return Plain(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def print_table(
    title: str | None,
    rows: Iterable[Sequence[str]],
    head: Sequence[str] | None = None,
    words: Collection[str] = (),
    caption: str | None = None,
    width: int | None = None,
) -> None:
    """A table on stdout: names in the first column, numbers to the right in the others.

    `words` are columns of the head that hold words, not numbers. Lines are broken to fit the
    terminal, unless another `width` is given.
    """
    from rich.table import Table

    table = Table(title=title, caption=caption, show_header=head is not None)
    for i, name in enumerate(head or ("", "")):
        if i == 0:
            table.add_column(name, style="bold", no_wrap=width is not None)
        else:
            side: Literal["left", "right"] = "left" if name in words else "right"
            table.add_column(name, justify=side, no_wrap=width is not None)
    for row in rows:
        table.add_row(*row)
    open_console(width=width).print(table)


def show(result: Mapping[str, object], as_json: bool, in_words: Callable[[], None]) -> int:
    """Print what a verb found, as one JSON object or in words; its exit status is returned."""
    if as_json:
        print(json.dumps(result))
    else:
        in_words()
    return 0
