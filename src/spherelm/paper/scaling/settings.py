"""Make the package's `measured.json`, from which `spherelm train` chooses, from the records.

The study's runs are in data/scaling of the results, the sweeps of the demo's two presets are in
compare-sweep.csv and compare-sweep-muon.csv, and runs of other widths are in data/width.json.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import spherelm
from spherelm import durable, presets
from spherelm.compare.sweep_grid import Plan, configure
from spherelm.compare.sweep_record import Record
from spherelm.config import RunConfig
from spherelm.measured import settings
from spherelm.measured.basis import WIDTHS
from spherelm.measured.settings import Size
from spherelm.paper import store
from spherelm.paper.scaling import widths
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.identity import arm_of, variant_of

OURS = Path(spherelm.__file__).parents[2] / "docs" / "results"
"""The results in the repository that contains this package; an installed package has none."""
SWEEPS = {"nano": "compare-sweep.csv", "nano-muon": "compare-sweep-muon.csv"}
"""The sweep of each preset."""


def tried(results: Path) -> list[settings.Setting]:
    """All settings with a run in the folder `results` that finished or diverged."""
    return settings.gather((*_study(results), *_swept_presets(results), *_widths(results)))


def _study(results: Path) -> Iterator[tuple[RunConfig, str, float]]:
    records = [r for r in store.read(results / "data" / "scaling") if r.finished or r.diverged]
    swept = _swept(records)
    for record in records:
        if not variant_of(record.id) and arm_of(record.config) in swept:
            loss = math.inf if record.diverged else record.loss
            yield record.config, "docs/results/headline.md", loss


def _swept(records: Sequence[store.Record]) -> set[str]:
    """The arms whose runs are informative about rates: the main ones, and recipes for which two
    rates were compared. Other recipes use the rate of the arm they change, whose own series of runs
    says more about what is best."""
    rates: dict[tuple[str, Size, int], set[tuple[float, float | None]]] = {}
    for record in records:
        run = record.config
        place = (arm_of(run), Size.of(run), record.tokens)
        rates.setdefault(place, set()).add((run.optim.lr, run.optim.muon_lr))
    return {arm for (arm, *_), tried in rates.items() if len(tried) > 1 or not ARMS[arm].base}


def _swept_presets(results: Path) -> Iterator[tuple[RunConfig, str, float]]:
    for preset, name in SWEEPS.items():
        if not (results / name).is_file():
            continue
        steps = presets.get(preset).train.steps
        plan = Plan(preset, data=None, device="cpu", steps=steps, cores=1)
        for trial, loss in Record(results / name, preset, steps).losses.items():
            yield configure(plan, trial), "docs/results/compare.md", loss


def _widths(results: Path) -> Iterator[tuple[RunConfig, str, float]]:
    """Runs at widths other than the sweep's own, where it has more seeds. Runs with nuGPT's rates
    are left out, since those are rates of a base width."""
    swept = presets.get("nano").model.d_model
    for ended in widths.read(results):
        run = ended.run
        if run.model.d_model != swept and run.optim.lr_groups == "one":
            yield run, WIDTHS, ended.loss


def update(results: Path) -> list[Path]:
    """Rewrite the package's file if `results` is the repository's own folder."""
    if results.resolve() != OURS.resolve():
        return []
    durable.write_text(settings.FILE, settings.to_json(tried(results)))
    return [settings.FILE]
