"""What an item found: tables whose columns have units, and pictures, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spherelm.plots.chart import Picture

Cell = str | float | int | None
"""None: there is no such number, or it was not measured."""
Whose = Literal["", "ours", "paper"]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    unit: str = ""
    whose: Whose = ""
    """Whose numbers they are; none's where they only say which row it is."""
    digits: int | None = None
    """Behind the point; unset: four that count."""

    @property
    def head(self) -> str:
        """Its name with whose it is and its unit."""
        whose = {"": "", "ours": " here", "paper": " in the paper"}[self.whose]
        return f"{self.name}{whose}" + (f" [{self.unit}]" if self.unit else "")

    def show(self, cell: Cell) -> str:
        """A cell in words."""
        if cell is None:
            return "–"
        if isinstance(cell, str):
            return cell
        if self.digits is not None:
            return f"{cell:,.{self.digits}f}"
        if isinstance(cell, int) or (abs(cell) >= 1000 and cell == round(cell)):
            return f"{cell:,.0f}"
        return f"{cell:,.5g}" if abs(cell) >= 1000 else f"{cell:.4g}"


def both(name: str, unit: str = "", digits: int | None = None) -> tuple[Column, Column]:
    """The same of ours and of the paper's, side by side."""
    return Column(name, unit, "ours", digits), Column(name, unit, "paper", digits)


@dataclass(frozen=True)
class Table:
    """Rows of cells, one for each column."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Result:
    """All that an item found."""

    tables: Sequence[Table]
    figures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    """What one must know about these numbers."""
