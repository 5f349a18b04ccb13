"""The one way to print tables and bars: names are shown as they are, never read as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def open_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console for stdout or stderr. Its texts are plain; for style give `rich.text.Text`."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError in hand, of which rich would make an exit with status 1

    return Plain(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)
