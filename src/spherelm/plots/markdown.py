"""Tables and pictures for documents in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, without a newline at its end."""
    lines = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    first = next(lines)
    return "\n".join((first, "|" + "---|" * len(head), *lines))


def picture(title: str, file: str) -> tuple[str, str]:
    """A title and its picture, two paragraphs: nobody sees the text in a picture's brackets."""
    return f"**{title}**", f"![{title}]({file})"
