"""The results of a sweep's runs: saved as the runs end, and summarized in tables."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from spherelm import durable, records
from spherelm.compare.sweep_grid import Grid, Seeds, Setting, Trial, describe, moved
from spherelm.errors import UserError
from spherelm.model.config import ARCHS, Arch
from spherelm.plots import markdown


class Record:
    """`sweep.csv`: a row for each finished run of one preset, length and data."""

    COLUMNS = ("preset", "steps", "data", "arch", "setting", "seed", "val_loss")

    def __init__(self, path: Path, preset: str, steps: int, data: str | None = None) -> None:
        """`data` is the fingerprint of the tokens; unset if the record is only read."""
        self.path, self.preset, self.steps, self.data = path, preset, steps, data
        self.losses: dict[Trial, float] = {}
        if not path.exists():
            self._write()
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                try:
                    trial, loss = _read(row)
                except (AttributeError, KeyError, TypeError, ValueError):
                    line = ",".join(str(value) for value in row.values() if value is not None)
                    raise records.damaged(path, f"{line!r} is not the row of a run") from None
                self._check(row)
                self.losses[trial] = loss

    def _check(self, row: Mapping[str, str]) -> None:
        if (row["preset"], row["steps"]) != (self.preset, str(self.steps)):
            raise UserError(
                f"{self.path} is of preset {row['preset']} at {row['steps']} steps, not of "
                f"{self.preset} at {self.steps}; choose another --out"
            )
        known = row.get("data")  # missing in old records, which lack this column
        if self.data is not None and known is not None and known != self.data:
            raise UserError(f"{self.path} is of runs on other data; choose another --out")

    def add(self, trial: Trial, loss: float) -> None:
        self.losses[trial] = loss
        self._write()

    def _write(self) -> None:
        """Rewrite all rows, so that a killed process leaves the old file, never half a row."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(self.COLUMNS)
        for trial, loss in self.losses.items():
            run = trial.arch, describe(trial.setting), trial.seed, loss
            rows.writerow((self.preset, self.steps, self.data, *run))
        durable.write_text(self.path, text.getvalue())

    def settings(self, arch: Arch) -> list[Setting]:
        """All settings of a model that were run, in that order."""
        return list(dict.fromkeys(t.setting for t in self.losses if t.arch == arch))

    def of(self, arch: Arch, setting: Setting, seeds: Iterable[int]) -> list[float]:
        """The losses of a setting, for those of `seeds` that were run."""
        trials = (Trial(arch, setting, seed) for seed in seeds)
        return [self.losses[trial] for trial in trials if trial in self.losses]

    def mean(self, arch: Arch, setting: Setting, seeds: Sequence[int]) -> float:
        """The mean loss of a setting over `seeds`; NaN unless all of them were run."""
        losses = self.of(arch, setting, seeds)
        return statistics.fmean(losses) if len(losses) == len(seeds) else math.nan

    def best(self, arch: Arch, seeds: Sequence[int]) -> Setting:
        """The setting with the lowest mean, among those run with all `seeds`."""
        means = {setting: self.mean(arch, setting, seeds) for setting in self.settings(arch)}
        return min((s for s in means if not math.isnan(means[s])), key=means.__getitem__)


def _read(row: Mapping[str, str]) -> tuple[Trial, float]:
    arch = ARCHS[ARCHS.index(row["arch"])]
    pairs = (word.split("=") for word in row["setting"].split())
    setting = tuple((name, float(value)) for name, value in pairs)
    return Trial(arch, setting, int(row["seed"])), float(row["val_loss"])


def summary(record: Record, seeds: Seeds, grids: Mapping[Arch, Grid]) -> str:
    """The sweep as Markdown: the winners, their neighbours, and all settings."""
    chosen_by, fresh = seeds.chosen_by, seeds.fresh
    best = {arch: record.best(arch, chosen_by) for arch in grids}

    def winner(arch: Arch) -> list[str]:
        rerun = record.of(arch, best[arch], fresh)
        mean = f"{statistics.fmean(rerun):.3f}" if rerun else ""
        deviation = f"{statistics.stdev(rerun):.3f}" if len(rerun) > 1 else ""
        chose = _losses(record.of(arch, best[arch], chosen_by))
        return [f"{arch}: {describe(best[arch])}", chose, _losses(rerun), mean, deviation]

    def around(arch: Arch, name: str, step: int) -> str:
        there = moved(best[arch], name, step, grids[arch])
        if there is None:
            return "the end of the grid"
        mean = _cell(record.mean(arch, there, chosen_by))
        return f"{dict(there)[name]:g}: " + (mean if step else f"**{mean}**")

    def ranked(arch: Arch) -> Iterator[list[str]]:
        means = {s: record.mean(arch, s, chosen_by) for s in record.settings(arch)}
        for setting in sorted(means, key=lambda s: (math.isnan(means[s]), means[s])):
            losses = record.of(arch, setting, (*chosen_by, *fresh))
            yield [describe(setting), _cell(means[setting]), _losses(losses)]

    head = ["best setting", "losses that chose it", "from fresh seeds", "mean", "deviation"]
    tables = [markdown.table(head, map(winner, grids))]
    for arch, grid in grids.items():
        head = [f"{arch}: one value moved, the others as above", "below", "best", "above"]
        rows = ([name, *(around(arch, name, step) for step in (-1, 0, 1))] for name in grid)
        tables.append(markdown.table(head, rows))
    tables += [
        markdown.table([f"{arch}: all settings", "mean", "losses by seed"], ranked(arch))
        for arch in grids
    ]
    return "\n\n".join(tables) + "\n"


def _losses(losses: Iterable[float]) -> str:
    return ", ".join(map(_cell, losses))


def _cell(loss: float) -> str:
    if math.isnan(loss):
        return "not from all seeds"
    return "diverged" if math.isinf(loss) else f"{loss:.3f}"
