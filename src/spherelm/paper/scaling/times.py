"""Time per training step of each arm, alone on the device, to turn token factors into time.

The times are in data/step-times.json of the results, with one entry per model; timing a model again
replaces its entry and keeps the others.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spherelm import records
from spherelm.errors import UserError
from spherelm.paper.scaling import grid
from spherelm.paper.scaling.arms import ARMS, MAIN
from spherelm.paper.scaling.identity import Place
from spherelm.paper.scaling.point import Point

if TYPE_CHECKING:
    from spherelm.bench.timing import Timing

Model = tuple[str, Place]
"""An arm at a size and context."""


@dataclass(frozen=True)
class StepTime:
    """A step of one model: median and quartiles in milliseconds."""

    arm: str
    size: str
    context: int
    tokens: int
    """Per step."""
    median_ms: float
    low_ms: float
    high_ms: float
    tokens_per_s: float
    device: str
    torch: str
    date: str

    @property
    def place(self) -> Place:
        return Place(self.size, self.context)

    @property
    def model(self) -> Model:
        return self.arm, self.place


def path_in(results: Path) -> Path:
    return results / "data" / "step-times.json"


def read(results: Path) -> list[StepTime]:
    """All step times, the study's own size first and arms in order; empty without a file."""
    path = path_in(results)
    if not path.is_file():
        return []
    entries = records.field(records.read(path), "steps", list, path)
    try:
        found = [StepTime(**entry) for entry in entries]
        return sorted(found, key=lambda t: (t.place.rank(), list(ARMS).index(t.arm)))
    except (TypeError, ValueError):
        raise records.damaged(path, "it has an entry that is no time of a step") from None


def chosen(patterns: str) -> list[Point]:
    """One point for each model to time.

    A pattern that matches arms means them at the study's size and 4k; one that matches run names
    means the models of those runs; '*' means the arms of `MAIN` at the study's size and 4k.
    """
    if patterns == "*":
        return [Point(arm, 92) for arm in MAIN]
    points: list[Point] = []
    for pattern in map(str.strip, patterns.split(",")):
        arms = fnmatch.filter(ARMS, pattern)
        points += [Point(arm, 92) for arm in arms] or grid.chosen(pattern)
    return list(
        {name(p): Point(p.arm, 92, context=p.context, size=p.size) for p in points}.values()
    )


def name(point: Point) -> str:
    """A model's name: the beginning of its runs' names, such as ngpt-muon-4k."""
    return point.id.partition(f"-{point.millions}m-")[0]


def measure(
    points: Sequence[Point], rehearse: bool, say: Callable[[str], None]
) -> Iterator[list[StepTime]]:
    """Time a step of each point's model. Models of one size and context take turns; one such group
    is timed after another."""
    from spherelm.bench.report import environment
    from spherelm.ops.device import choose_device
    from spherelm.paper.step_times import step_times

    device = choose_device("auto", "--time")
    if device.type != "cuda" and not rehearse:
        raise UserError(
            f"--time needs a CUDA device, not {device}; with --rehearse any device does"
        )
    made_with = environment(device)
    for place in sorted({Place(p.size, p.context) for p in points}, key=Place.rank):
        here = {name(p): p for p in points if (p.size, p.context) == place}
        runs = {n: p.job(rehearse).config for n, p in here.items()}
        times = step_times(runs, device, whole=True, say=say)
        for each, timing in times.items():
            say(f"{each}: {timing} ms for {runs[each].tokens_per_step:,} tokens")
        yield [_entry(p, times[n], runs[n].tokens_per_step, made_with) for n, p in here.items()]


def _entry(point: Point, timing: Timing, tokens: int, made_with: Mapping[str, str]) -> StepTime:
    return StepTime(
        arm=point.arm,
        size=point.size,
        context=point.context,
        tokens=tokens,
        median_ms=round(timing.median, 3),
        low_ms=round(timing.low, 3),
        high_ms=round(timing.high, 3),
        tokens_per_s=round(tokens / timing.median * 1e3),
        device=made_with["device"],
        torch=made_with["torch"],
        date=datetime.now(timezone.utc).date().isoformat(),
    )


def keep(results: Path, measured: Iterable[StepTime]) -> Path:
    """Write the measured times to the file, keeping those of other models."""
    kept = {time.model: time for time in (*read(results), *measured)}
    path = path_in(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = [dataclasses.asdict(time) for time in kept.values()]
    records.write(path, {"steps": entries})
    return path


def ratio(times: Iterable[StepTime], one: Model, other: Model) -> float | None:
    """Seconds per token of `one` divided by those of `other`; None unless both were timed on the
    same kind of device with the same torch."""
    by_model = {time.model: time for time in times}
    if one not in by_model or other not in by_model:
        return None
    first, second = by_model[one], by_model[other]
    if (first.device, first.torch) != (second.device, second.torch):
        return None
    return second.tokens_per_s / first.tokens_per_s
