"""The paper's three tables of ablations, made from the study's runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from spherelm.console import format_context
from spherelm.model.config import ModelConfig
from spherelm.paper.ablations import COLUMNS, TABLES, Ablation, Table
from spherelm.paper.noise import Noise
from spherelm.paper.scaling import chance
from spherelm.paper.scaling.chance import noises
from spherelm.paper.scaling.identity import Place, Runs, by_seed, first
from spherelm.paper.scaling.words import millions
from spherelm.paper.store import Record
from spherelm.plots import markdown

TITLES: dict[Table, str] = {
    "init": "Where factors start and how they are stored (the paper's Table 4)",
    "scalar": "Scalars or fixed values in place of learned vectors (Table 5)",
    "norm": "QK-norm and SLERP (Table 6)",
}
_HEAD = ("row", *chance.COLUMNS, "paper's change, %")
_NAMES = {"s_qk": "s_qk", "s_u": "s_u and s_ν", "s_z": "s_z", "alpha": "α_A and α_M"}
_DESIGN = {"no-qk-norm": "no QK-norm", "slerp": "SLERP in place of LERP"}


def tables(records: Sequence[Record]) -> Iterator[str]:
    """The tables that have rows, for each setting that was ablated."""
    settings: dict[str, dict[str, Runs]] = {}
    for (setting, variant), runs in by_seed(records).items():
        settings.setdefault(setting, {})[variant] = runs
    chances = noises(records)
    for variants in settings.values():
        unchanged = variants.pop("", {})
        if unchanged and variants:
            place = Place.of(first(unchanged).config)
            yield from _of_setting(unchanged, variants, chances.get(place))


def _of_setting(
    unchanged: Runs, variants: Mapping[str, Runs], noise: Noise | None
) -> Iterator[str]:
    run = first(unchanged)
    model = run.config.model
    s_z, alpha = (model.resolve_scale(name).init for name in ("s_z", "alpha_attn"))
    yield (
        f"Ablations of nGPT with {millions(run.tokens)} tokens in {format_context(model.context)} "
        f"context. Where a row does not change it, s_z starts at {s_z:g} and α at {alpha:g}, in "
        "the paper at 1 and 0.05. A difference has the same seeds on both sides. "
        + (
            "With one seed nothing is known of what chance does."
            if noise is None
            else chance.BY_CHANCE
        )
    )
    for table, title in TITLES.items():
        rows = list(_rows(TABLES[table], unchanged, variants, noise))
        if rows:
            yield f"{title}:"
            yield markdown.table(_HEAD, rows)


def _rows(
    table: Sequence[Ablation], unchanged: Runs, variants: Mapping[str, Runs], noise: Noise | None
) -> Iterator[list[str]]:
    """The unchanged model first, then the rows that were run, in the paper's order."""
    found = [(row, variants[row.name]) for row in table if row.name in variants]
    seeds = sorted({seed for _, runs in found for seed in runs} & unchanged.keys())
    if not seeds:
        return
    number = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    mean = statistics.fmean(unchanged[seed].loss for seed in seeds)
    yield [f"unchanged, {number}", f"{mean:.3f}", "", "", "", ""]
    for row, runs in found:
        model = first(runs).config.model
        paper = f"{row.reported.loss_percent:+.2f}"
        yield [_title(row, model), *chance.cells(runs, unchanged, noise), paper]


def _title(row: Ablation, model: ModelConfig) -> str:
    """What a row changes, with this model's values."""
    told = []
    for column, values in row.factors.items():
        scale = model.resolve_scale(COLUMNS[column][0])
        what = f"start {scale.init:.3g}, stored at {scale.scale:.3g}"
        told.append(f"{_NAMES[column]}: {values.get('mode', what)}")
    return "; ".join(told) or _DESIGN[row.name]
