"""The result of an item: tables with units and pictures, our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spherelm.plots.chart import Picture

Cell = str | float | int | None
"""None: the number does not exist or was not measured."""
Whose = Literal["", "ours", "paper"]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    unit: str = ""
    whose: Whose = ""
    """Whose numbers they are; empty for a column that only identifies the row."""
    digits: int | None = None
    """Decimal places; unset: four significant digits."""

    @property
    def head(self) -> str:
        """Its name, with whose numbers they are and the unit."""
        whose = {"": "", "ours": " here", "paper": " in the paper"}[self.whose]
        return f"{self.name}{whose}" + (f" [{self.unit}]" if self.unit else "")

    def show(self, cell: Cell) -> str:
        """A cell as text."""
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
    """Two columns for the same number, ours and the paper's."""
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
    """What to know when reading these numbers."""
