"""The best rate of models that differ only in width, as Markdown and as a picture.

The runs are in data/width.json of the results: presets with some fields changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spherelm import presets, records
from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.measured.recommend import lowest
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.figures import colour
from spherelm.paper.scaling.identity import arm_of
from spherelm.plots import markdown
from spherelm.plots.chart import Axis, Chart, Series

FILE = Path("data", "width.json")


@dataclass(frozen=True)
class Ended:
    """A run, and the validation loss that it ended with."""

    run: RunConfig
    loss: float


@dataclass(frozen=True)
class Sweep:
    """The loss at each rate of one kind of model, at one width and from one seed."""

    arm: str
    nugpt: bool
    width: int
    seed: int
    losses: dict[float, float] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:
        return ARMS[self.arm].title + (", nuGPT's rates" if self.nugpt else "")

    @property
    def best(self) -> float:
        """The lowest point of the parabola through the best rate and its neighbours."""
        return lowest(self.losses.items())

    @property
    def inside(self) -> bool:
        """Whether worse rates were tried on both sides of the best."""
        rates = sorted(self.losses)
        return min(rates, key=self.losses.__getitem__) not in (rates[0], rates[-1])


def read(results: Path) -> list[Ended]:
    """The runs in the folder `results`; none if it has no such file."""
    if not (results / FILE).is_file():
        return []
    kept = records.read_format(results / FILE, "spherelm runs of presets", 1)["runs"]
    return [
        Ended(override(presets.get(run["preset"]), run["fields"]), run["val_loss"]) for run in kept
    ]


def sweeps(ended: Sequence[Ended]) -> list[Sweep]:
    """The runs by seed, model and width."""
    found: dict[Sweep, dict[float, float]] = {}
    for each in ended:
        run = each.run
        nugpt = run.optim.lr_groups == "nugpt"
        sweep = Sweep(arm_of(run), nugpt, run.model.d_model, run.train.seed)
        found.setdefault(sweep, sweep.losses)[run.optim.lr] = each.loss
    order = list(ARMS)
    return sorted(found, key=lambda s: (s.seed, order.index(s.arm), s.nugpt, s.width))


def tables(ended: Sequence[Ended]) -> Iterator[str]:
    """A table of best rates by width, then one of every run."""
    tried = sweeps(ended)
    if not tried:
        return
    widths = sorted({sweep.width for sweep in tried})
    yield markdown.table(
        ("best rate", "seed", *map(str, widths), "with each doubling"),
        (
            (title, str(seed), *(_best(by_width.get(w)) for w in widths), _fall(by_width))
            for (title, seed), by_width in _by_model(tried).items()
        ),
    )
    rates = sorted({lr for sweep in tried for lr in sweep.losses})
    yield markdown.table(
        ("", "width", "seed", *(f"{lr:g}" for lr in rates)),
        ((s.title, str(s.width), str(s.seed), *(_loss(s, lr) for lr in rates)) for s in tried),
    )


def charts(ended: Sequence[Ended]) -> list[Chart]:
    """The best rate over the width, from the first seed."""
    tried = [sweep for sweep in sweeps(ended) if sweep.inside]
    tried = [sweep for sweep in tried if sweep.seed == tried[0].seed]
    if not tried:
        return []
    widths = sorted({sweep.width for sweep in tried})
    series = [
        Series(
            title,
            colour(first.arm),
            [(width, sweep.best) for width, sweep in by_width.items()],
            square=not ARMS[first.arm].ngpt,
            dotted=first.nugpt,
        )
        for (title, _), by_width in _by_model(tried).items()
        for first in [next(iter(by_width.values()))]
    ]
    told = "; ".join(f"{line.label} {line.points[-1][1]:.2g}" for line in series)
    return [
        Chart(
            "width",
            "The best rate over the width",
            f"At the largest width: {told}.",
            Axis("width", log=True, ticks=[(width, str(width)) for width in widths]),
            Axis("best rate", log=True),
            series,
        )
    ]


def _by_model(tried: Sequence[Sweep]) -> dict[tuple[str, int], dict[int, Sweep]]:
    """The sweeps of each model and seed, by width."""
    found: dict[tuple[str, int], dict[int, Sweep]] = {}
    for sweep in tried:
        found.setdefault((sweep.title, sweep.seed), {})[sweep.width] = sweep
    return found


def _best(sweep: Sweep | None) -> str:
    if sweep is None:
        return ""
    return f"{sweep.best:.2g}" if sweep.inside else f"({sweep.best:.2g})"


def _fall(by_width: dict[int, Sweep]) -> str:
    """The factor on the best rate when the width doubles, between the first and the last width."""
    found = [sweep for sweep in by_width.values() if sweep.inside]
    if len(found) < 2:
        return ""
    first, last = found[0], found[-1]
    doublings = math.log2(last.width / first.width)
    return f"times {(last.best / first.best) ** (1 / doublings):.2f}"


def _loss(sweep: Sweep, lr: float) -> str:
    loss = sweep.losses.get(lr)
    if loss is None:
        return ""
    return f"**{loss:.3f}**" if loss == min(sweep.losses.values()) else f"{loss:.3f}"
