"""The sweep behind the defaults of `spherelm compare`, for anyone to repeat.

    python -m spherelm.compare.sweep --preset nano --out runs/sweep

Both models are tuned alike: four values each, the same ladders of rates and warmups, the same
seeds, the same rule. From the preset's own values the sweep tries every neighbour, one step up or
down in one value, and moves to the best until none is better; a setting counts by its mean over
the seeds. So the values it ends with lie inside the grid: the settings around them were run, and
lost. The lowest of many means is partly luck, and so the two winners run once more from fresh
seeds, which chose nothing.

`sweep.csv` gets a row when a run ends, and the same command goes on where it stopped. Runs are in
float32 on every device, so that a GPU finds what a CPU would.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from spherelm import durable, presets
from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.folders import place
from spherelm.folders.kinds import SWEEP
from spherelm.model.config import Arch
from spherelm.ops.device import choose_device
from spherelm.training.failures import Diverged
from spherelm.validate import require_int

Setting = tuple[tuple[str, float], ...]
"""Names of a grid and their values, such as (("lr", 0.002), ("warmup", 0.1))."""
Grid = Mapping[str, Sequence[float]]

RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
WARMUPS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
GRIDS: dict[Arch, Grid] = {
    "gpt": {
        "lr": RATES,
        "warmup": WARMUPS,
        "init": (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8),
        "decay": (0.0, 0.03, 0.1, 0.3, 1.0, 3.0),
    },
    "ngpt": {
        "lr": RATES,
        "warmup": WARMUPS,
        "s_z": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
        "alpha": (0.05, 0.1, 0.2, 0.4, 0.8),
    },
}
"""The ladders that values move on. `warmup` is a share of the steps, `init` the standard deviation
of GPT's matrices times sqrt(d_model), `s_z` and `alpha` are starting values."""


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    arch: Arch
    setting: Setting
    seed: int


@dataclass(frozen=True)
class Plan:
    """What all runs of a sweep share."""

    preset: str
    data: str | None
    device: str
    steps: int
    cores: int
    """Threads of each run."""


def configure(plan: Plan, trial: Trial) -> RunConfig:
    """The configuration of a trial: the preset with the trial's values, evaluated at the end."""
    base = presets.get(f"{trial.arch}-{plan.preset}")
    changes: dict[str, object] = {
        "train.steps": plan.steps,
        "train.seed": trial.seed,
        "train.device": plan.device,
        "train.precision": "fp32",
        "train.deterministic": choose_device(plan.device).type == "cuda",  # switches TF32 off
        "train.eval_every": 0,
        "train.checkpoint_every": 0,
        "train.tensorboard": False,
        "data.path": plan.data,
    }
    for name, value in trial.setting:
        changes |= _fields(name, value, base, plan.steps)
    return override(base, changes)


def _fields(name: str, value: float, base: RunConfig, steps: int) -> dict[str, object]:
    """The fields of a run that a value of the grid sets."""
    fields: dict[str, dict[str, object]] = {
        "lr": {"optim.lr": value},
        "warmup": {"optim.warmup_steps": round(value * steps)},
        "init": {"model.init_std": value / math.sqrt(base.model.d_model)},
        "decay": {"optim.weight_decay": value},
        "s_z": {"model.s_z.init": value},
        "alpha": {"model.alpha_attn.init": value, "model.alpha_mlp.init": value},
    }
    return fields[name]


def setting_of(run: RunConfig, grid: Grid) -> Setting:
    """The setting that a configuration has: for each name of the grid its nearest value there."""
    model = run.model
    values = {
        "lr": run.optim.lr,
        "warmup": run.optim.warmup_steps / run.train.steps,
        "init": model.matrix_std * math.sqrt(model.d_model),
        "decay": run.optim.weight_decay,
        "s_z": model.resolve_scale("s_z").init,
        "alpha": model.resolve_scale("alpha_attn").init,
    }
    return tuple(
        (name, min(ladder, key=lambda rung: abs(rung - values[name])))
        for name, ladder in grid.items()
    )


def neighbours(setting: Setting, grid: Grid) -> list[Setting]:
    """All settings one step up or down in one value."""
    moved = (_moved(setting, name, step, grid) for name, _ in setting for step in (-1, 1))
    return [there for there in moved if there is not None]


def _moved(setting: Setting, name: str, step: int, grid: Grid) -> Setting | None:
    """The setting with the value of that name moved on its ladder; None beyond its end."""
    rung = grid[name].index(dict(setting)[name]) + step
    if not 0 <= rung < len(grid[name]):
        return None
    return tuple((n, grid[name][rung] if n == name else v) for n, v in setting)


def run_trial(plan: Plan, trial: Trial) -> float:
    """The final validation loss of a trial; infinite where it diverged."""
    import torch

    from spherelm.compare.pair import check_data
    from spherelm.data.open import open_dataset
    from spherelm.training.loop import train

    torch.set_num_threads(plan.cores)
    run = configure(plan, trial)
    dataset = open_dataset(plan.data)
    check_data(dataset)
    with tempfile.TemporaryDirectory(prefix="spherelm-sweep-") as scratch:
        try:
            result = train(run, dataset, Path(scratch) / "run")
        except Diverged:
            return math.inf
    assert result.val_loss is not None
    return result.val_loss


class Record:
    """`sweep.csv`: a row for each run of one preset and length that has ended."""

    COLUMNS = ("preset", "steps", "arch", "setting", "seed", "val_loss")

    def __init__(self, path: Path, preset: str, steps: int) -> None:
        self.path, self.preset, self.steps = path, preset, steps
        self.losses: dict[Trial, float] = {}
        if not path.exists():
            durable.write_text(path, ",".join(self.COLUMNS) + "\n")
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if (row["preset"], row["steps"]) != (preset, str(steps)):
                    raise UserError(
                        f"{path} is of preset {row['preset']} at {row['steps']} steps, not of "
                        f"{preset} at {steps}; choose another --out"
                    )
                arch: Arch = "gpt" if row["arch"] == "gpt" else "ngpt"
                pairs = (word.split("=") for word in row["setting"].split())
                setting = tuple((name, float(value)) for name, value in pairs)
                trial = Trial(arch, setting, int(row["seed"]))
                self.losses[trial] = float(row["val_loss"])

    def add(self, trial: Trial, loss: float) -> None:
        self.losses[trial] = loss
        row = (self.preset, self.steps, trial.arch, describe(trial.setting), trial.seed, loss)
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(row)

    def settings(self, arch: Arch) -> list[Setting]:
        """All settings of a model that were run, in the order in which they were."""
        return list(dict.fromkeys(t.setting for t in self.losses if t.arch == arch))

    def of(self, arch: Arch, setting: Setting, seeds: Iterable[int]) -> list[float]:
        """The losses of a setting from those seeds that were run."""
        trials = (Trial(arch, setting, seed) for seed in seeds)
        return [self.losses[trial] for trial in trials if trial in self.losses]

    def mean(self, arch: Arch, setting: Setting, seeds: Sequence[int]) -> float:
        """The mean loss of a setting over `seeds`; NaN where not all of them were run."""
        losses = self.of(arch, setting, seeds)
        return statistics.fmean(losses) if len(losses) == len(seeds) else math.nan

    def best(self, arch: Arch, seeds: Sequence[int]) -> Setting:
        """The setting of the lowest mean over `seeds`, of those that ran from all of them."""
        means = {setting: self.mean(arch, setting, seeds) for setting in self.settings(arch)}
        return min((s for s in means if not math.isnan(means[s])), key=means.__getitem__)


def describe(setting: Setting) -> str:
    """lr=0.002 warmup=0.1"""
    return " ".join(f"{name}={value:g}" for name, value in setting)


def sweep(
    plan: Plan, record: Record, *, seeds: int, jobs: int, grids: Mapping[Arch, Grid] = GRIDS
) -> None:
    """Climb down from the preset's values until no neighbour is better; the winners run afresh."""
    chosen_by, fresh = range(seeds), range(seeds, 2 * seeds)
    spawn = multiprocessing.get_context("spawn")  # a GPU cannot be used in a forked process
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        where = {
            arch: setting_of(presets.get(f"{arch}-{plan.preset}"), grid)
            for arch, grid in grids.items()
        }
        moved = True
        while moved:
            around = {arch: (here, *neighbours(here, grids[arch])) for arch, here in where.items()}
            trials = (
                Trial(arch, setting, seed)
                for arch, settings in around.items()
                for setting in settings
                for seed in chosen_by
            )
            _run(pool, plan, record, trials)
            best = {arch: record.best(arch, chosen_by) for arch in grids}
            moved, where = best != where, best
        _run(pool, plan, record, (Trial(*w, seed) for w in where.items() for seed in fresh))


def _run(pool: ProcessPoolExecutor, plan: Plan, record: Record, trials: Iterable[Trial]) -> None:
    waiting = [trial for trial in trials if trial not in record.losses]
    futures = {pool.submit(run_trial, plan, trial): trial for trial in waiting}
    for done, future in enumerate(as_completed(futures), start=1):
        trial, loss = futures[future], future.result()
        record.add(trial, loss)
        line = f"{trial.arch:<4}  {describe(trial.setting)}  seed {trial.seed}: {loss:.4f}"
        print(f"[{done}/{len(waiting)}] {line}", file=sys.stderr, flush=True)


def summary(record: Record, seeds: int, grids: Mapping[Arch, Grid] = GRIDS) -> str:
    """The sweep as Markdown: the winners, what lies around them, and all that was run."""
    chosen_by, fresh = range(seeds), range(seeds, 2 * seeds)
    best = {arch: record.best(arch, chosen_by) for arch in grids}

    def winner(arch: Arch) -> list[str]:
        anew = record.of(arch, best[arch], fresh)
        deviation = statistics.stdev(anew) if len(anew) > 1 else math.nan
        spread = [f"{statistics.fmean(anew):.3f}", f"{deviation:.3f}"] if anew else ["", ""]
        chose = _losses(record.of(arch, best[arch], chosen_by))
        return [f"{arch}: {describe(best[arch])}", chose, _losses(anew), *spread]

    def around(arch: Arch, name: str, step: int) -> str:
        there = _moved(best[arch], name, step, grids[arch])
        if there is None:
            return "the end of the grid"
        mean = _cell(record.mean(arch, there, chosen_by))
        return f"{dict(there)[name]:g}: " + (mean if step else f"**{mean}**")

    def ranked(arch: Arch) -> Iterator[list[str]]:
        means = {s: record.mean(arch, s, chosen_by) for s in record.settings(arch)}
        for setting in sorted(means, key=means.__getitem__):
            losses = record.of(arch, setting, (*chosen_by, *fresh))
            yield [describe(setting), _cell(means[setting]), _losses(losses)]

    head = ["best setting", "losses that chose it", "from fresh seeds", "mean", "deviation"]
    tables = [_table(head, map(winner, grids))]
    for arch, grid in grids.items():
        head = [f"{arch}: one value moved, the others as above", "below", "best", "above"]
        rows = ([name, *(around(arch, name, step) for step in (-1, 0, 1))] for name in grid)
        tables.append(_table(head, rows))
    columns = ["mean", "losses by seed"]
    tables += [_table([f"{arch}: all settings", *columns], ranked(arch)) for arch in grids]
    return "\n".join(tables)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, *rows]
    written = [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([written[0], "|---" * len(head) + "|\n", *written[1:]])


def _losses(losses: Iterable[float]) -> str:
    return ", ".join(map(_cell, losses))


def _cell(loss: float) -> str:
    return "diverged" if math.isinf(loss) else f"{loss:.3f}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spherelm.compare.sweep",
        description="Find the four tuned values of each model of a small preset.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for sweep.csv")
    parser.add_argument("--preset", default="nano", help="debug or nano")
    parser.add_argument("--data", help="folder of token shards; default: the built-in corpus")
    parser.add_argument("--steps", type=int, help="steps of each run; default: the preset's")
    parser.add_argument("--seeds", type=int, default=3, help="runs of every setting")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps or auto")
    flags = parser.parse_args(argv)
    try:
        for name in ("jobs", "seeds"):
            require_int(f"--{name}", getattr(flags, name))
        cores = max(1, (os.cpu_count() or 1) // flags.jobs)
        steps = flags.steps or presets.get(f"gpt-{flags.preset}").train.steps
        plan = Plan(flags.preset, flags.data, flags.device, steps, cores)
        with place.results(flags.out, SWEEP, inputs=[flags.data]):
            record = Record(flags.out / "sweep.csv", flags.preset, steps)
            sweep(plan, record, seeds=flags.seeds, jobs=flags.jobs)
    except UserError as error:
        print(f"spherelm: {error}", file=sys.stderr)
        return error.exit_status
    print(summary(record, flags.seeds), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
