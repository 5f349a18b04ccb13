"""What an item of `spherelm reproduce` is: a figure or a table of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spherelm.paper.points import Point
from spherelm.paper.result import Result
from spherelm.paper.runner import Job
from spherelm.paper.size import Size

if TYPE_CHECKING:
    from spherelm.paper.workbench import Workbench


@dataclass(frozen=True)
class Item:
    """A figure or a table: the runs it needs, and how it is made from them."""

    name: str
    source: str
    """Which figure or table of the paper."""
    title: str
    shows: str
    """What it shows, in a line."""
    points: Callable[[Size], Sequence[Point]]
    """Its runs; many are shared with other items and trained only once."""
    make: Callable[[Workbench], Result]
    weights: bool = True
    """Whether it needs the trained models, or only the records of the runs."""
    tasks: bool = False
    """Whether it cannot be made without the tasks' files."""
    books: bool = False
    cuda: bool = False
    """Whether it needs a CUDA device (except at nano)."""

    def jobs(self, size: Size) -> list[Job]:
        """The runs of its points, each once."""
        return list({job.id: job for job in map(size.job, self.points(size))}.values())
