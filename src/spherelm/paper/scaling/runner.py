"""Train the runs of the study; see `spherelm.paper.runner`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spherelm.paper.runner import Job, Runner
from spherelm.paper.scaling.point import Point, rehearsed


@dataclass
class Study:
    """A queue of the study's runs, where they are trained and where their records go."""

    points: Sequence[Point]
    data: str | None
    """Folder of tokens; unset: the built-in corpus."""
    out: Path
    records: Path
    workers: int = 2
    seconds: float | None = None
    """No run is started that is not expected to end by then."""
    rehearse: bool = False
    say: Callable[[str], None] = print

    def run(self) -> None:
        """Train what is not done yet; an error names the runs that failed."""
        jobs = []
        for point in self.points:
            config = rehearsed(point.config()) if self.rehearse else point.config()
            jobs.append(Job(point.id, config))
        Runner(
            jobs,
            self.data,
            self.out,
            self.records,
            workers=self.workers,
            seconds=self.seconds,
            say=self.say,
        ).run()
