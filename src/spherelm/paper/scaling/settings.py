"""`measured.json` of the package, from which `spherelm train` chooses: made from the records.

The study's runs are in data/scaling of the results, the demo's sweep in compare-sweep.csv.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import spherelm
from spherelm import durable
from spherelm.compare.sweep_grid import Plan, configure
from spherelm.compare.sweep_record import Record
from spherelm.config import RunConfig
from spherelm.measured import settings
from spherelm.paper import store
from spherelm.paper.scaling.identity import variant_of

OURS = Path(spherelm.__file__).parents[2] / "docs" / "results"
"""The results of the repository that the package lies in; an installed one lies in none."""
SWEEP = "compare-sweep.csv"


def tried(results: Path) -> list[settings.Setting]:
    """All settings that the folder `results` has runs of that finished or diverged."""
    return settings.gather((*_study(results), *_sweep(results)))


def _study(results: Path) -> Iterator[tuple[RunConfig, str, float]]:
    for record in store.read(results / "data" / "scaling"):
        if variant_of(record.id):  # rates were not tried for a variant
            continue
        if record.finished or record.diverged:
            loss = math.inf if record.diverged else record.loss
            yield record.config, "docs/results/headline.md", loss


def _sweep(results: Path) -> Iterator[tuple[RunConfig, str, float]]:
    if not (results / SWEEP).is_file():
        return
    preset, steps = "nano", 1500
    plan = Plan(preset, data=None, device="cpu", steps=steps, cores=1)
    for trial, loss in Record(results / SWEEP, preset, steps).losses.items():
        yield configure(plan, trial), "docs/results/compare.md", loss


def update(results: Path) -> list[Path]:
    """Write the package's file again where `results` is the repository's own folder."""
    if results.resolve() != OURS.resolve():
        return []
    durable.write_text(settings.FILE, settings.to_json(tried(results)))
    return [settings.FILE]
