"""The sweep behind the defaults of `spherelm compare`, for anyone to repeat.

    python -m spherelm.experiments.sweep --preset nano --out runs/sweep

Both models are tuned alike: every setting of a model's grid is trained once, and the best one of
each again from further seeds, since the lowest of many losses is partly luck. `sweep.csv` gets a
row when a run ends, and the same command goes on where it stopped. Runs are in float32 on every
device, so that a GPU finds what a CPU would.
"""

from __future__ import annotations

import argparse
import csv
import itertools
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
from spherelm.train.device import choose_device
from spherelm.train.health import Diverged

Setting = tuple[tuple[str, float], ...]
"""Names of a grid and their values, such as (("lr", 0.002), ("warmup", 0.1))."""
Grid = Mapping[str, Sequence[float]]

GRIDS: dict[Arch, Grid] = {
    "gpt": {
        "lr": (1e-3, 2e-3, 4e-3, 8e-3),
        "warmup": (0.0, 0.1, 0.2, 0.4, 0.6, 0.8),
    },
    "ngpt": {
        "lr": (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2),
        "s_z": (1.0, 8.0, 16.0),
        "alpha": (0.05, 0.1, 0.2, 0.4),
    },
}
"""What is tried for each model. `warmup` is a share of the steps; `s_z` and `alpha` are starting
values, the first of each the paper's."""


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


def trials_of(arch: Arch, grid: Grid) -> list[Trial]:
    """Every setting of a grid, from seed 0."""
    combinations = itertools.product(*grid.values())
    return [Trial(arch, tuple(zip(grid, values, strict=True)), seed=0) for values in combinations]


def configure(plan: Plan, trial: Trial) -> RunConfig:
    """The configuration of a trial: the preset with the trial's values, evaluated at the end."""
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
        if name == "warmup":
            changes["optim.warmup_steps"] = round(value * plan.steps)
        elif name == "alpha":
            changes["model.alpha_attn.init"] = changes["model.alpha_mlp.init"] = value
        elif name == "s_z":
            changes["model.s_z.init"] = value
        else:
            changes[f"optim.{name}"] = value
    return override(presets.get(f"{trial.arch}-{plan.preset}"), changes)


def run_trial(plan: Plan, trial: Trial) -> float:
    """The final validation loss of a trial; infinite where it diverged."""
    import torch

    from spherelm.data.dataset import open_dataset
    from spherelm.train.loop import train

    torch.set_num_threads(plan.cores)
    run = configure(plan, trial)
    with tempfile.TemporaryDirectory(prefix="spherelm-sweep-") as scratch:
        try:
            result = train(run, open_dataset(plan.data), Path(scratch) / "run")
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
                self._read(row)

    def _read(self, row: dict[str, str]) -> None:
        if (row["preset"], row["steps"]) != (self.preset, str(self.steps)):
            raise UserError(
                f"{self.path} is of preset {row['preset']} at {row['steps']} steps, not of "
                f"{self.preset} at {self.steps}; choose another --out"
            )
        arch: Arch = "gpt" if row["arch"] == "gpt" else "ngpt"
        trial = Trial(arch, _parse(row["setting"]), int(row["seed"]))
        self.losses[trial] = float(row["val_loss"])

    def add(self, trial: Trial, loss: float) -> None:
        self.losses[trial] = loss
        row = (self.preset, self.steps, trial.arch, describe(trial.setting), trial.seed, loss)
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(row)

    def best(self, arch: Arch) -> Setting:
        """The setting of the lowest loss from seed 0."""
        first = {t: loss for t, loss in self.losses.items() if t.arch == arch and t.seed == 0}
        return min(first, key=first.__getitem__).setting

    def of(self, arch: Arch, setting: Setting) -> list[float]:
        """The losses of a setting, by seed."""
        found = {
            trial.seed: loss
            for trial, loss in self.losses.items()
            if (trial.arch, trial.setting) == (arch, setting)
        }
        return [found[seed] for seed in sorted(found)]


def describe(setting: Setting) -> str:
    """lr=0.002 warmup=0.1"""
    return " ".join(f"{name}={value:g}" for name, value in setting)


def _parse(text: str) -> Setting:
    pairs = (word.split("=") for word in text.split())
    return tuple((name, float(value)) for name, value in pairs)


def sweep(
    plan: Plan, record: Record, *, seeds: int, jobs: int, grids: Mapping[Arch, Grid] = GRIDS
) -> None:
    """Run what the record lacks: every setting from seed 0, then the best from other seeds."""
    spawn = multiprocessing.get_context("spawn")  # a GPU cannot be used in a forked process
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        _run(pool, plan, record, (t for arch, grid in grids.items() for t in trials_of(arch, grid)))
        winners = [(arch, record.best(arch)) for arch in grids]
        _run(pool, plan, record, (Trial(*w, seed) for w in winners for seed in range(1, seeds)))


def _run(pool: ProcessPoolExecutor, plan: Plan, record: Record, trials: Iterable[Trial]) -> None:
    waiting = [trial for trial in trials if trial not in record.losses]
    futures = {pool.submit(run_trial, plan, trial): trial for trial in waiting}
    for done, future in enumerate(as_completed(futures), start=1):
        trial, loss = futures[future], future.result()
        record.add(trial, loss)
        line = f"{trial.arch:<4}  {describe(trial.setting)}  seed {trial.seed}: {loss:.4f}"
        print(f"[{done}/{len(waiting)}] {line}", file=sys.stderr, flush=True)


def summary(record: Record, grids: Mapping[Arch, Grid] = GRIDS) -> str:
    """The sweep as Markdown: a row per setting, a column per learning rate, then the winners."""
    return "\n".join(_summary_lines(record, grids)) + "\n"


def _summary_lines(record: Record, grids: Mapping[Arch, Grid]) -> Iterator[str]:
    for arch, grid in grids.items():
        rates = grid["lr"]
        others = [name for name in grid if name != "lr"]
        best = record.best(arch)
        yield f"| {arch}: {', '.join(others)} | " + " | ".join(f"lr {r:g}" for r in rates) + " |"
        yield "|---" * (1 + len(rates)) + "|"
        for values in itertools.product(*(grid[name] for name in others)):
            rest = tuple(zip(others, values, strict=True))
            cells = []
            for rate in rates:
                setting = (("lr", rate), *rest)
                text = _cell(record.losses.get(Trial(arch, setting, 0)))
                cells.append(f"**{text}**" if setting == best else text)
            yield f"| {', '.join(f'{v:g}' for v in values)} | " + " | ".join(cells) + " |"
        yield ""
    yield "| best setting | losses by seed | mean | spread |"
    yield "|---|---|---|---|"
    for arch in grids:
        setting = record.best(arch)
        losses = record.of(arch, setting)
        yield (
            f"| {arch}: {describe(setting)} | {', '.join(f'{loss:.3f}' for loss in losses)} "
            f"| {statistics.mean(losses):.3f} | {max(losses) - min(losses):.3f} |"
        )


def _cell(loss: float | None) -> str:
    if loss is None:
        return ""
    return "diverged" if math.isinf(loss) else f"{loss:.3f}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spherelm.experiments.sweep",
        description="Find the learning rates and starting values of a small preset.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for sweep.csv")
    parser.add_argument("--preset", default="nano", help="debug or nano")
    parser.add_argument("--data", help="folder of token shards; default: the built-in corpus")
    parser.add_argument("--steps", type=int, help="steps of each run; default: the preset's")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each best setting")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps or auto")
    flags = parser.parse_args(argv)
    cores = max(1, (os.cpu_count() or 1) // flags.jobs)
    try:
        steps = flags.steps or presets.get(f"gpt-{flags.preset}").train.steps
        plan = Plan(flags.preset, flags.data, flags.device, steps, cores)
        with place.results(flags.out, SWEEP, inputs=[flags.data]):
            record = Record(flags.out / "sweep.csv", flags.preset, steps)
            sweep(plan, record, seeds=flags.seeds, jobs=flags.jobs)
    except UserError as error:
        print(f"spherelm: {error}", file=sys.stderr)
        return error.exit_status
    print(summary(record), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
