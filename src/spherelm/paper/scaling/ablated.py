"""The paper's three tables of ablations, of the study's runs: what each row changes, and what
chance alone would."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from spherelm.model.config import ModelConfig
from spherelm.paper.ablations import COLUMNS, TABLES, Ablation, Table
from spherelm.paper.scaling.best import setting_of
from spherelm.paper.scaling.words import millions, thousands
from spherelm.paper.store import Record
from spherelm.plots import markdown

STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""Student's t with 1, 2, ... degrees of freedom: nine of ten values lie between -t and t."""

TITLES: dict[Table, str] = {
    "init": "Where factors start and how they are stored (the paper's Table 4)",
    "scalar": "Scalars or fixed values in place of learned vectors (Table 5)",
    "norm": "QK-norm and SLERP (Table 6)",
}
_HEAD = ("row", "final loss", "difference", "by chance", "change, %", "paper's change, %")
_NAMES = {"s_qk": "s_qk", "s_u": "s_u and s_ν", "s_z": "s_z", "alpha": "α_A and α_M"}
_DESIGN = {"no-qk-norm": "no QK-norm", "slerp": "SLERP in place of LERP"}

Runs = dict[int, Record]
"""Of one setting, by their seeds."""


def tables(records: Sequence[Record]) -> Iterator[str]:
    """Those that have rows, for each setting that was ablated."""
    settings: dict[str, dict[str, Runs]] = {}
    for record in records:
        setting, variant = setting_of(record.id)
        if record.finished:
            runs = settings.setdefault(setting, {}).setdefault(variant, {})
            runs[record.config.train.seed] = record
    for variants in settings.values():
        unchanged = variants.pop("", {})
        if unchanged and variants:
            yield from _of_setting(unchanged, variants)


def _of_setting(unchanged: Runs, variants: Mapping[str, Runs]) -> Iterator[str]:
    run = next(iter(unchanged.values()))
    model = run.config.model
    s_z, alpha = (model.resolve_scale(name).init for name in ("s_z", "alpha_attn"))
    yield (
        f"Ablations of nGPT with {millions(run.tokens)} tokens in {thousands(model.context)} "
        f"context. Where a row does not change it, s_z starts at {s_z:g} and α at {alpha:g}, in "
        "the paper at 1 and 0.05. A difference is one of the same seeds. "
        + _chance_told(len(unchanged))
    )
    for table, title in TITLES.items():
        rows = list(_rows(TABLES[table], unchanged, variants))
        if rows:
            yield f"{title}:"
            yield markdown.table(_HEAD, rows)


def _chance_told(seeds: int) -> str:
    if seeds < 2:
        return "With one seed of the unchanged model nothing is known of what chance does."
    return (
        "By chance: what nine of ten differences of two unchanged runs stay below, √2 times the "
        f"standard deviation over {seeds} seeds times Student's t; what is beyond it is bold."
    )


def by_chance(unchanged: Runs, pairs: int) -> float | None:
    """What nine of ten mean differences of so many pairs of runs of one setting stay below; None
    where only one of it is known."""
    if len(unchanged) < 2:
        return None
    spread = statistics.stdev(run.loss for run in unchanged.values())
    return STUDENT[min(len(unchanged) - 1, len(STUDENT)) - 1] * math.sqrt(2 / pairs) * spread


def _rows(
    table: Sequence[Ablation], unchanged: Runs, variants: Mapping[str, Runs]
) -> Iterator[list[str]]:
    """The unchanged model first, then the rows that were run, in the paper's order."""
    found = [(row, variants[row.name]) for row in table if row.name in variants]
    seeds = sorted({seed for _, runs in found for seed in runs} & unchanged.keys())
    if not seeds:
        return
    number = "seed " + str(seeds[0]) if len(seeds) == 1 else f"{len(seeds)} seeds"
    mean = statistics.fmean(unchanged[seed].loss for seed in seeds)
    yield [f"unchanged, {number}", f"{mean:.3f}", "", "", "", ""]
    for row, runs in found:
        yield _row(row, runs, unchanged)


def _row(row: Ablation, runs: Runs, unchanged: Runs) -> list[str]:
    loss = statistics.fmean(run.loss for run in runs.values())
    shared = sorted(runs.keys() & unchanged.keys())
    shown = ["-", "-", "-"]
    if shared:
        difference = statistics.fmean(runs[s].loss - unchanged[s].loss for s in shared)
        base = statistics.fmean(unchanged[seed].loss for seed in shared)
        chance = by_chance(unchanged, len(shared))
        told = f"{difference:+.3f}"
        if chance is not None and abs(difference) > chance:
            told = f"**{told}**"
        shown = [
            told,
            "-" if chance is None else f"{chance:.3f}",
            f"{100 * difference / base:+.2f}",
        ]
    model = next(iter(runs.values())).config.model
    return [_title(row, model), f"{loss:.3f}", *shown, f"{row.reported.loss_percent:+.2f}"]


def _title(row: Ablation, model: ModelConfig) -> str:
    """What a row changes, with the values that this model has."""
    told = []
    for column, values in row.factors.items():
        scale = model.resolve_scale(COLUMNS[column][0])
        what = f"starts at {scale.init:.3g}, stored at {scale.scale:.3g}"
        told.append(f"{_NAMES[column]} {values.get('mode', what)}")
    return "; ".join(told) or _DESIGN[row.name]
